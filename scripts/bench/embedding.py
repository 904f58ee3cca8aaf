#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What embeddings cost: CPU seconds and peak memory, with sentence-transformers' in the same run.

    python3 scripts/bench/embedding.py MODEL_DIR PAIRS.jsonl

MODEL_DIR and PAIRS.jsonl as scripts/make_minilm.py makes them. Trains 256 pairs of 64 tokens an
update with MultipleNegativesRankingLoss, at once and 16 at a time, in turns with
sentence-transformers; each with few and with more updates, which takes the start off. Encodes 10,000
texts of the pairs. Needs the packages of tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAIRS, LENGTH, FEW, MORE, TEXTS = 256, 64, 1, 4, 10000


def measured(command, **more):
    """CPU seconds and peak memory in MiB of a process and its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(said.decode(errors="replace")[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(args, folder, steps, rows):
    config = {
        "task": "embedding",
        "model_name_or_path": str(args.model),
        "train_file": str(args.pairs),
        "output_dir": str(folder / f"run-{rows}-{steps}"),
        "cache_dir": str(folder / "cache"),
        "overwrite_output_dir": True,
        "max_seq_length": LENGTH,
        "effective_batch_size": PAIRS,
        "per_device_train_batch_size": rows,
        "max_steps": steps,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
    }
    path = folder / "run.json"
    path.write_text(json.dumps(config))
    return measured([args.binary, "train", str(path), "--restart"])


def peer(args):
    """The command of a process: trains `--steps` updates, or encodes."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    rows = [json.loads(line) for line in args.pairs.read_text().splitlines()]
    columns = list(rows[0])[:2]
    model = SentenceTransformer(str(args.model), device="cpu")
    if args.steps == 0:
        model.encode(texts_of(args.pairs))
        return
    model.max_seq_length = LENGTH
    loss = losses.MultipleNegativesRankingLoss(model)
    if args.rows < PAIRS:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=args.rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    model.train()
    for step in range(args.steps):
        batch = [rows[(step * PAIRS + i) % len(rows)] for i in range(PAIRS)]
        loss([model.preprocess([row[c] for row in batch]) for c in columns], None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def texts_of(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [text for row in rows for text in list(row.values())[:2]]
    return [texts[i % len(texts)] for i in range(TEXTS)]


def encoding(args, folder):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts_of(args.pairs)))
    return measured([args.binary, "predict", str(args.model), "--use_cpu", "--batch_size", "32",
                     "--input", str(path), "--output", str(folder / "vectors.jsonl")])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=PAIRS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps is not None:
        return peer(args)

    def theirs(steps, rows=PAIRS):
        return measured([sys.executable, __file__, str(args.model), str(args.pairs),
                         "--steps", str(steps), "--rows", str(rows)])  # fmt: skip

    print("| | CPU s | peak MiB | CPU s | peak MiB | ratios |\n|---|---|---|---|---|---|")

    def row(name, own, other):
        ratios = f"{own[0] / other[0]:.2f}, {own[1] / other[1]:.2f}"
        cells = " | ".join(f"{cpu:.1f} | {peak:.0f}" for cpu, peak in (own, other))
        print(f"| {name} | {cells} | {ratios} |", flush=True)

    def of_update(run):
        few, more = run(FEW), run(MORE)
        return (more[0] - few[0]) / (MORE - FEW), more[1]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (PAIRS, 16):
            own = of_update(lambda steps, rows=rows: ours(args, folder, steps, rows))
            other = of_update(lambda steps, rows=rows: theirs(steps, rows))
            row(f"an update of {PAIRS} pairs, {rows} at a time", own, other)
        row(f"{TEXTS} texts", encoding(args, folder), theirs(0))


if __name__ == "__main__":
    main()
