#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much of the communication between processes lies within the backward pass.

Trains a few steps in several processes of this machine with log_level: debug, whose lines tell for
each bucket of gradients when it was ready, sent and summed. A bucket's communication is the time
from sent to done; what of it passed before the end of the backward pass cost nothing.

processes.py --model tiny tries the script out in seconds. Needs nothing but the standard library.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TRACE = re.compile(
    r"step (\d+): gradients of all processes.* over at ([\d.]+), all summed at ([\d.]+); "
    r"buckets \(MB: ready, sent, done\): (.*)"
)
MODELS = {
    "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 512},
    "small": {"num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 2048},
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072},
}


def write_run(folder, options):
    """The configuration of a run on random words, and what it needs."""
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghij", k=4)) for _ in range(500)]
    text = folder / "text.txt"
    lines = (" ".join(source.choices(words, k=options.tokens)) for _ in range(400))
    text.write_text("\n".join(lines) + "\n")
    tokenizer = folder / "tokenizer"
    subprocess.run(
        [options.finetune, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "2000"]
        + ["--output", tokenizer, text],
        check=True,
        capture_output=True,
    )
    keys = {
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
        "use_cpu": True,
        "model_type": "roberta",
        "tokenizer_name": str(tokenizer),
        "config_overrides": MODELS[options.model]
        | {"num_attention_heads": 4, "max_position_embeddings": options.tokens + 2},
        "train_file": str(text),
        "max_seq_length": options.tokens,
        "per_device_train_batch_size": options.batch,
        "max_steps": options.steps,
        "save_strategy": "no",
        "report_to": "none",
        "log_level": "debug",
        "ddp_bucket_cap_mb": options.bucket,
        "ddp_comm_hook": options.hook,
        "zero_stage": options.zero,
    }
    path = folder / "run.json"
    path.write_text(json.dumps(keys))
    return path


def overlap(line):
    """Of one step: (backward pass, communication, what of it passed beside it, wait), in ms."""
    found = TRACE.search(line)
    if not found:
        return None
    backward, end = float(found[2]), float(found[3])
    total = beside = 0.0
    for bucket in found[4].split("; "):
        _, sent, done = (float(moment) for moment in bucket.split(": ")[1].split(", "))
        total += done - sent
        beside += max(0.0, min(done, backward) - sent)
    return backward, total, beside, end - backward


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--finetune", default=ROOT / "build" / "finetune")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--batch", type=int, default=2, help="samples of a process")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--bucket", type=int, default=25, help="ddp_bucket_cap_mb")
    parser.add_argument("--hook", default="no", help="ddp_comm_hook")
    parser.add_argument("--zero", type=int, default=0, help="zero_stage")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = write_run(Path(temporary), options)
        result = subprocess.run(
            [options.finetune, "train", run, "--num_processes", str(options.processes)],
            env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            capture_output=True,
            text=True,
        )
        if result.returncode != 0:
            sys.exit(result.stderr)
    steps = [step for step in map(overlap, result.stderr.splitlines()) if step]
    steps = steps[1:] or steps  # the first one warms up
    if not steps:
        sys.exit("no line tells of buckets:\n" + result.stderr)
    print("| backward pass, ms | communication, ms | of it beside the backward pass | wait, ms |")
    print("|---|---|---|---|")
    backward, total, beside, wait = (statistics.median(column) for column in zip(*steps))
    share = beside / total if total else 0.0
    print(f"| {backward:.0f} | {total:.0f} | {share:.0%} | {wait:.0f} |")


if __name__ == "__main__":
    main()
