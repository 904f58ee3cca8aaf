#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Time of one update of a RoBERTa's 84M parameters by each optimizer and by its peer.

ninja optimizers_benchmark builds what measures ours. Every measurement is a separate process, and
the repeats of all of them are interleaved. One JSON line a process is appended to
results/optimizers.jsonl; --report prints a Markdown table of the newest session with the best update
of all repeats, the first of each process left out. Needs torch, and bitsandbytes for its row.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from memory import machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# name: arguments of the benchmark (kind, weights, embeddings in 8 bits), or of the peer
OURS = {
    "adamw": ["adamw", "float32", "0"],
    "adamw_8bit": ["adamw_8bit", "float32", "0"],
    "adamw_8bit, all": ["adamw_8bit", "float32", "1"],
    "adamw_companded_8bit": ["adamw_companded_8bit", "float32", "0"],
    "adamw_companded_8bit, bfloat16": ["adamw_companded_8bit", "bfloat16", "0"],
    "adamw_companded_8bit, bfloat16+int8": ["adamw_companded_8bit", "split", "0"],
    "adafactor": ["adafactor", "float32", "0"],
    "sgd": ["sgd", "float32", "0"],
}
PEERS = ["torch AdamW fused", "bitsandbytes AdamW 8 bits, all", "transformers Adafactor"]


def shapes(divisor):
    width = 768 // divisor
    yield from [(52000 // divisor, width), (514, width)]
    for _ in range(6):
        yield from [(width, width), (width,)] * 4
        yield from [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
        yield from [(width,)] * 4
    yield (width, width)


def run_peer(name, updates, divisor):
    import torch

    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(s) * 0.02) for s in shapes(divisor)]
    for parameter in parameters:
        parameter.grad = parameter.detach() * 0.01
    if name == "torch AdamW fused":
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, fused=True)
    elif name == "transformers Adafactor":
        from transformers.optimization import Adafactor

        optimizer = Adafactor(parameters, lr=1e-4, scale_parameter=False, relative_step=False)
    else:
        import bitsandbytes

        optimizer = bitsandbytes.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01, optim_bits=8)
    seconds, cpu_seconds = [], []
    for _ in range(updates):
        start, cpu = time.perf_counter(), time.process_time()
        optimizer.step()
        seconds.append(round(time.perf_counter() - start, 6))
        cpu_seconds.append(round(time.process_time() - cpu, 6))
    count = sum(p.numel() for p in parameters)
    print(json.dumps({"parameters": count, "seconds": seconds, "cpu_seconds": cpu_seconds}))


def measure(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    about = {
        "session": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "threads": args.threads,
        **machine(),
    }
    numbers = [str(args.updates), str(args.divisor)]
    runs = {("ours", n): [str(args.binary), *words, *numbers] for n, words in OURS.items()}
    for name in PEERS:
        command = [args.peer_python, __file__, "--peer", name]
        runs["peer", name] = [*command, "--updates", numbers[0], "--divisor", numbers[1]]
    records = []
    for repeat in range(args.repeats):
        for (program, name), command in runs.items():
            if args.only and not any(word in name for word in args.only):
                continue
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{name}: {done.stderr.strip()[-1000:]}")
            result = json.loads(done.stdout)
            record = {"program": program, "optimizer": name, "repeat": repeat, **result}
            records.append({**record, "load": round(os.getloadavg()[0], 2), **about})
            print(f"{name}: {best(records[-1:])[0]:.3f} s", file=sys.stderr)
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                with open(args.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps(records[-1]) + "\n")
    report(records)


def best(records):
    """Seconds, and CPU seconds, of the best update; each process' first makes its states."""
    return [min(min(r[key][1:]) for r in records) for key in ("seconds", "cpu_seconds")]


def report(records):
    last = records[-1]
    records = [r for r in records if r["session"] == last["session"]]
    print(f"{last['parameters'] / 1e6:.1f}M parameters, {last['threads']} threads, {last['cpu']}\n")
    print("| optimizer | program | seconds | CPU seconds |\n|---|---|---|---|")
    for program, name in dict.fromkeys((r["program"], r["optimizer"]) for r in records):
        chosen = [r for r in records if (r["program"], r["optimizer"]) == (program, name)]
        seconds, cpu = best(chosen)
        print(f"| {name} | {program} | {seconds:.3f} | {cpu:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "optimizers_benchmark")
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", help="optimizers whose name holds one of these")
    parser.add_argument(
        "--updates", type=int, default=10, help="of a process; not timed: the first"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--divisor", type=int, default=1, help="of the model's sizes, to try it out"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, default=HERE / "results" / "optimizers.jsonl")
    parser.add_argument("--report", action="store_true", help="of what --json holds")
    args = parser.parse_args()
    if args.updates < 2:
        parser.error("two updates at least: the first is not timed")
    if args.peer:
        run_peer(args.peer, args.updates, args.divisor)
    elif args.report:
        report([json.loads(line) for line in args.json.read_text().splitlines()])
    else:
        measure(args)


if __name__ == "__main__":
    main()
