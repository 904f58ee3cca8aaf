#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several processes on one machine: overlap, scaling, and the cost of collectives.

The default part shows how much of the communication overlaps the backward pass.

Trains a few steps in several processes of this machine with log_level: debug, whose lines tell for
each bucket of gradients when it was ready, sent and summed. A bucket's communication is the time
from sent to done; what of it passed before the end of the backward pass cost nothing.

--scaling compares one process of two threads with two of one, in turns: CPU seconds and tokens a
second. --collectives measures joining and summing among 2 to 16 processes (target
processes_benchmark). All three write results/processes.json, --scaling a part for each number of
samples of an update (twice --batch). --divided compares the stages of zero_stage: time and peak.

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
import time
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
    "84m": {"num_hidden_layers": 6, "hidden_size": 768, "intermediate_size": 3072, "vocab_size": 50265},
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
        | {"num_attention_heads": 4 if options.model != "84m" else 12, "max_position_embeddings": options.tokens + 2},
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
    """Of one step: (backward pass, communication, its overlap with the backward pass, wait), in ms."""
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


def peaks(process):
    """Peak resident MiB of a launcher's processes, or of the one that there is."""
    found = {}
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            for child in children.read_text().split() or [process.pid]:
                status = Path(f"/proc/{child}/status").read_text()
                found[child] = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
        except (OSError, TypeError):  # it ends
            pass
        time.sleep(0.02)
    return list(found.values())


def train(options, folder, name, processes, threads, zero=0):
    """Seconds and CPU seconds of a run's steps, with the ranks' peaks: what a start takes is measured apart and left out."""
    run = write_run(folder, options)
    figures = []
    for steps in (1, 1 + options.steps):
        out = folder / f"{name}-{steps}"
        before = os.times()
        begin = time.monotonic()
        with subprocess.Popen(
            [options.finetune, "train", run, "--num_processes", str(processes)]
            + ["--output_dir", out, "--max_steps", str(steps), "--log_level", "warning"]
            + ["--zero_stage", str(zero), "--effective_batch_size", str(2 * options.batch)]
            + ["--per_device_train_batch_size", str(max(1, 2 * options.batch // processes))],
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            memory = peaks(process)
        if process.returncode != 0:
            sys.exit(f"{out}: exit code {process.returncode}")
        wall = time.monotonic() - begin
        after = os.times()
        cpu = after.children_user + after.children_system
        figures.append((wall, cpu - before.children_user - before.children_system))
    return *(long - short for short, long in zip(*figures)), max(memory, default=0.0)


def in_turns(options, folder, kinds):
    """What train() gives of each kind (processes, threads, zero_stage), once a round."""
    rounds = {name: [] for name in kinds}
    for number in range(options.rounds):
        for name, (processes, threads, stage) in kinds.items():
            turn = folder / f"{number}-{processes}-{stage}"
            turn.mkdir()
            rounds[name].append(train(options, turn, "run", processes, threads, stage))
    return rounds


def scaling(options, folder):
    kinds = {"1 process x 2 threads": (1, 2, 0), "2 processes x 1 thread": (2, 1, 0)}
    rounds = in_turns(options, folder, kinds)
    tokens = 2 * options.batch * options.tokens * options.steps
    rows = []
    print("| | tokens a second | CPU seconds | of the first, seconds |")
    print("|---|---|---|---|")
    first = statistics.median(wall for wall, *_ in next(iter(rounds.values())))
    for name, turns in rounds.items():
        wall, cpu, _ = (statistics.median(column) for column in zip(*turns))
        rows.append({"name": name, "tokens": tokens, "seconds": wall, "cpu_seconds": cpu})
        print(f"| {name} | {tokens / wall:,.0f} | {cpu:.1f} | {wall / first:.2f} |")
    return rows


def divided(options, folder):
    kinds = {"1 process x 2 threads": (1, 2, 0)}
    kinds |= {f"2 processes x 1 thread, zero_stage {stage}": (2, 1, stage) for stage in range(4)}
    kinds["4 processes x 1 thread, zero_stage 3"] = (4, 1, 3)
    rounds = in_turns(options, folder, kinds)
    rows = []
    print("| | seconds an update | of the first | CPU seconds | peak of a process, MiB |")
    print("|---|---|---|---|---|")
    first = statistics.median(wall for wall, *_ in next(iter(rounds.values())))
    for name, turns in rounds.items():
        wall, cpu, peak = (statistics.median(column) for column in zip(*turns))
        rows.append({"name": name, "seconds": wall / options.steps, "cpu_seconds": cpu / options.steps})
        rows[-1] |= {"of_the_first": wall / first, "peak_mib": peak}
        print(f"| {name} | {wall / options.steps:.2f} | {wall / first:.2f} | {cpu / options.steps:.2f} | {peak:,.0f} |")
    return rows


def collectives(options):
    rows = []
    print("| processes | to meet, ms | sum of three numbers, ms | sum of 25 MB, ms |")
    print("|---|---|---|---|")
    for processes in (2, 4, 8, 16):
        result = subprocess.run(
            [options.benchmark, str(processes), "25"], check=True, capture_output=True, text=True
        )
        row = json.loads(result.stdout)
        rows.append(row)
        times = [row[key] * 1e3 for key in ("meet_seconds", "small_sum_seconds", "sum_seconds")]
        print(f"| {processes} | {times[0]:.0f} | {times[1]:.2f} | {times[2]:.0f} |")
    return rows


def keep(options, part, rows):
    path = options.results
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[part] = {"cores": os.cpu_count(), "model": options.model, "rows": rows}
    path.write_text(json.dumps(kept, indent=1) + "\n")


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
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--collectives", action="store_true")
    parser.add_argument("--divided", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--benchmark", default=ROOT / "build" / "processes_benchmark")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "processes.json")
    options = parser.parse_args()
    if options.collectives:
        return keep(options, "collectives", collectives(options))
    if options.divided:
        with tempfile.TemporaryDirectory() as folder:
            return keep(options, f"divided_{options.model}", divided(options, Path(folder)))
    if options.scaling:
        with tempfile.TemporaryDirectory() as folder:
            part = f"scaling_{2 * options.batch}_samples"
            return keep(options, part, scaling(options, Path(folder)))
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
    print("| backward pass, ms | communication, ms | overlap with the backward pass | wait, ms |")
    print("|---|---|---|---|")
    backward, total, beside, wait = (statistics.median(column) for column in zip(*steps))
    share = beside / total if total else 0.0
    print(f"| {backward:.0f} | {total:.0f} | {share:.0%} | {wait:.0f} |")
    row = {"processes": options.processes, "samples": options.batch, "bucket_mb": options.bucket}
    row |= {"ddp_comm_hook": options.hook, "zero_stage": options.zero, "steps": len(steps)}
    row |= {"backward_ms": backward, "communication_ms": total, "beside_ms": beside}
    keep(options, "overlap", [row | {"wait_ms": wait, "share_beside": share}])


if __name__ == "__main__":
    main()
