#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What frozen parameters save: CPU seconds of an update and peak memory, and the plan's peak.

Trains a BERT (12 layers of 384) with everything trained and with its embeddings and lower half
frozen, in turns, each with few and with more updates, which takes the start off. Prints a Markdown
table; exits with 1 if the frozen half costs more than 0.72 of the CPU seconds or 0.75 of the peak,
or a plan is more than a tenth off.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
VARIANTS = {
    "everything is trained": [],
    "embeddings and lower half frozen": ["embeddings", "layer.[0-5]"],
    "the encoder frozen": ["bert"],
}
HALF = "embeddings and lower half frozen"
FEW = 2


def configuration(folder, freeze, steps):
    path = folder / "run.json"
    path.write_text(json.dumps({
        "task": "mlm", "model_type": "bert", "tokenizer_name": str(FIXTURES / "tokenizers/lighthouse"),
        "config_overrides": {
            "vocab_size": 600, "hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6,
            "intermediate_size": 1536,
        },
        "train_file": str(FIXTURES / "text/lighthouse.txt"), "validation_split_percentage": 0,
        "max_seq_length": 128, "per_device_train_batch_size": 16, "max_steps": steps,
        "save_strategy": "no", "logging_steps": steps, "report_to": "none", "freeze": freeze,
        "output_dir": str(folder / "out"), "cache_dir": str(folder / "cache"),
    }))  # fmt: skip
    return path


def train(binary, freeze, steps):
    """CPU seconds and peak in MiB of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = configuration(Path(folder), freeze, steps)
        process = subprocess.Popen([binary, "train", path], stderr=subprocess.PIPE, text=True)
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(said)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def planned(binary, freeze):
    with tempfile.TemporaryDirectory() as folder:
        path = configuration(Path(folder), freeze, FEW)
        plan = subprocess.run([binary, "plan", path], capture_output=True, text=True, check=True)
    return int(re.search(r"predicted peak\s+([\d,]+) MiB", plan.stdout)[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds = {name: [] for name in VARIANTS}
    peaks = dict.fromkeys(VARIANTS, 0.0)
    for _ in range(options.rounds):
        for name, freeze in VARIANTS.items():
            start, _ = train(options.binary, freeze, FEW)
            whole, peak = train(options.binary, freeze, FEW + options.steps)
            seconds[name].append((whole - start) / options.steps)
            peaks[name] = max(peaks[name], peak)
    base = statistics.median(seconds["everything is trained"])
    most = peaks["everything is trained"]
    print("| | CPU s an update | peak, MiB | planned, MiB |\n|---|---|---|---|")
    ok = True
    for name, freeze in VARIANTS.items():
        one, peak, plan = statistics.median(seconds[name]), peaks[name], planned(options.binary, freeze)
        print(f"| {name} | {one:.2f} ({one / base:.2f}x) | {peak:.0f} ({peak / most:.2f}x) | {plan} |")
        ok = ok and abs(plan - peak) <= 0.1 * peak
        if name == HALF:
            ok = ok and one <= 0.72 * base and peak <= 0.75 * most
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
