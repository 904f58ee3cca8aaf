#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains configs/esperberto_small.yaml in float32 and with what saves memory, and compares the
evaluation losses.

One process and one seed each; prints a Markdown table and writes results/convergence.json. Exits 1
where a loss ends more than 1 % above that of float32. Needs nothing but the standard library.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOLERANCE = 0.01

LEAN = {"optim": "adamw_companded_8bit", "grad_accum_dtype": "bfloat16"}
RUNS = {
    "float32": {},
    "8-bit AdamW": {"optim": "adamw_8bit"},
    "companded 8-bit AdamW, bf16 gradients": LEAN,
    "the same, bf16 + int8 weights": {**LEAN, "param_dtype": "bfloat16+int8"},
    "the same, bf16 weights": {**LEAN, "param_dtype": "bfloat16"},
    "computing in bf16": {"bf16": "true"},
    "everything: bf16 + int8 weights, bf16 gradients, companded 8-bit AdamW, fp16, "
    "checkpointing, accumulation": {
        **LEAN,
        "param_dtype": "bfloat16+int8",
        "fp16": "true",
        "gradient_checkpointing": "true",
        "gradient_accumulation_steps": "4",
    },
}


def train(args, name, keys, work, env):
    output = work / f"run-{list(RUNS).index(name)}"
    keys = dict(keys)
    if "gradient_accumulation_steps" in keys:  # the same effective batch
        keys["per_device_train_batch_size"] = args.batch // int(keys["gradient_accumulation_steps"])
    command = [args.binary, "train", args.config, "--output_dir", output, "--seed", args.seed]
    command += ["--tokenizer_name", work / "tokenizer", "--save_strategy", "no"]
    command += ["--max_steps", args.max_steps]
    for key, value in keys.items():
        command += [f"--{key}", value]
    process = subprocess.Popen([str(c) for c in command], env=env, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{name}: failed with exit code {os.waitstatus_to_exitcode(status)}")
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    return {
        "name": name,
        "keys": keys,
        "curve": [{"step": r["step"], "loss": r["eval_loss"]} for r in log if "eval_loss" in r],
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def table(results):
    lines = ["| | evaluation loss | against float32 | CPU s | MiB |", "|---|---|---|---|---|"]
    base = results[0]["curve"][-1]["loss"]
    for result in results:
        loss = result["curve"][-1]["loss"]
        lines.append(
            f"| {result['name']} | {loss:.4f} | {100 * (loss / base - 1):+.2f} % "
            f"| {result['cpu_seconds']:.0f} | {result['peak_mib']:.0f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--binary", default=ROOT / "build/finetune")
    parser.add_argument("--config", default=ROOT / "configs/esperberto_small.yaml")
    parser.add_argument("--data", required=True, type=Path, help="holds esperanto.txt, -valid.txt")
    parser.add_argument("--batch", default=8, type=int, help="the configuration's effective batch")
    parser.add_argument("--max_steps", default=1000, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--output", default=HERE / "results/convergence.json", type=Path)
    parser.add_argument("--only", nargs="+", choices=RUNS, help="train these and keep the others of --output")
    args = parser.parse_args()
    names = args.only or list(RUNS)
    env = dict(
        os.environ, OMP_NUM_THREADS=str(args.threads), ESPERANTO_DATA=str(args.data.resolve())
    )
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tokenizer = [args.binary, "tokenizer", "train", "--type", "byte_level_bpe"]
        tokenizer += ["--vocab_size", 4000, "--output", work / "tokenizer"]
        tokenizer += [args.data / "esperanto.txt"]
        subprocess.run([str(c) for c in tokenizer], env=env, check=True, capture_output=True)
        kept = json.loads(args.output.read_text()) if args.only else []
        found = {result["name"]: result for result in kept}
        for name in names:
            found[name] = train(args, name, RUNS[name], work, env)
            results = [found[name] for name in RUNS if name in found]
            print(table([found[name]]).splitlines()[-1], file=sys.stderr, flush=True)
            args.output.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    base = results[0]["curve"][-1]["loss"]
    return int(any(r["curve"][-1]["loss"] > base * (1 + TOLERANCE) for r in results))


if __name__ == "__main__":
    sys.exit(main())
