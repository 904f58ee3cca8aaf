#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long training stands still for a save of 1 GB, beside transformers' Trainer.

ninja saves_benchmark builds what measures ours: the writer of checkpoints during an emulated step of
50 ms, with the weights and moments of a RoBERTa of 84M parameters. The peer trains the same tensors
with its Trainer, whose step sleeps as long. Runs are interleaved; one JSON line each is appended to
results/saves.jsonl; --report prints a Markdown table of the newest session. Needs torch, transformers
and accelerate for the peer.
"""

import argparse
import datetime
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import machine
from optimizers import shapes

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results" / "saves.jsonl"


def run_peer(folder, steps, save_steps, step_seconds):
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            values = (torch.nn.Parameter(torch.full(s, 0.5)) for s in shapes(1))
            self.weights = torch.nn.ParameterList(values)

        def forward(self, x, labels=None):
            return {"loss": sum(w.view(-1)[0] for w in self.weights) * x.sum()}

    class Emulated(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            time.sleep(step_seconds)
            if self.state.global_step == 0:  # so that every moment is there
                return super().training_step(model, inputs, num_items_in_batch)
            for weight in model.parameters():
                weight.grad = None
            return torch.zeros(())

    stalls = []

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            self.begin = time.perf_counter()

        def on_save(self, args, state, control, **kwargs):
            stalls.append(time.perf_counter() - self.begin)

    data = [{"x": torch.ones(1), "labels": torch.zeros(1)}] * steps
    args = TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        save_steps=save_steps,
        save_total_limit=1,
        per_device_train_batch_size=1,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_steps=10**9,
    )
    trainer = Emulated(model=Model(), args=args, train_dataset=data, callbacks=[Clock()])
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    parameters = sum(p.numel() for p in trainer.model.parameters())
    print(
        json.dumps(
            {
                "bytes": parameters * 12,
                "steps": steps,
                "save_steps": save_steps,
                "seconds": seconds,
                "stall": sum(stalls),
                "stalls": stalls,
            }
        )
    )


def measure(command, folder):
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.rmtree(folder, ignore_errors=True)
    return json.loads(result.stdout.strip().splitlines()[-1])


def report(results):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    newest = [line for line in lines if line["session"] == lines[-1]["session"]]
    print("| | save every | stall a save, median (largest) | a GB | share of the time |")
    print("|---|---|---|---|---|")
    for key in dict.fromkeys((line["name"], line["save_steps"]) for line in newest):
        rows = [line for line in newest if (line["name"], line["save_steps"]) == key]
        stalls = [stall for row in rows for stall in row["stalls"]]
        middle = statistics.median(stalls)
        gigabytes = rows[0]["bytes"] / 1e9
        share = sum(row["stall"] for row in rows) / sum(row["seconds"] for row in rows)
        print(
            f"| {key[0]} | {key[1]} steps | {middle:.2f} s ({max(stalls):.2f}) "
            f"| {middle / gigabytes:.2f} s | {share:.1%} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--save_steps", type=int, nargs="+", default=[500, 100])
    parser.add_argument("--step_ms", type=float, default=50)
    parser.add_argument("--folder", help="where checkpoints are written (default: a new one)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        return report(options.results)
    if options.peer:
        folder, steps, save_steps, milliseconds = options.peer
        return run_peer(folder, int(steps), int(save_steps), float(milliseconds) / 1000)
    session = datetime.datetime.now().isoformat(timespec="seconds")
    binary = str(options.build / "saves_benchmark")
    with tempfile.TemporaryDirectory(dir=options.folder) as root, options.results.open("a") as out:
        for _ in range(options.repeats):
            for save_steps in options.save_steps:
                folder = f"{root}/out"
                numbers = [str(options.saves * save_steps), str(save_steps), str(options.step_ms)]
                peer = [sys.executable, __file__, "--peer", folder, *numbers]
                for name, command in {
                    "in the background": [binary, folder, *numbers, "1"],
                    "async_save: false": [binary, folder, *numbers, "0"],
                    "transformers": peer,
                }.items():
                    row = {"session": session, "name": name, **machine()}
                    row.update(measure(command, folder))
                    out.write(json.dumps(row) + "\n")
                    out.flush()
                    print(name, save_steps, row["stalls"], file=sys.stderr)


if __name__ == "__main__":
    main()
