#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak memory and CPU seconds of one update of a two-layer Llama against the sequence length T.

    scripts/bench/long_context.py --text shakespeare.txt [--lengths 4096 8192 16384 32768]

One row of T tokens, float32, AdamW, one thread. Activations grow with T; the time has a part that
grows with T and attention's, which grows with T^2: the line `fit` has both coefficients and the
largest deviation from them. CPU seconds exclude the start, measured on a run of 64 tokens. Writes
results/long_context.json. Exit code 1 where memory is not linear in T within --tolerance.
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
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"


def long_lines(text, scratch):
    """The text with a hundred lines in each: blocks do not cross groups of 1,000 lines (run_clm's)."""
    lines = text.read_text(encoding="utf-8").splitlines()
    path = scratch / "text.txt"
    path.write_text("\n".join(" ".join(lines[i : i + 100]) for i in range(0, len(lines), 100)))
    return path


def run(args, length, scratch):
    """CPU seconds and peak MiB of a run of one update."""
    keys = {
        "task": "clm",
        "model_type": "llama",
        "config_overrides": {
            "num_hidden_layers": 2,
            "hidden_size": args.hidden,
            "intermediate_size": 3 * args.hidden,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 65536,
        },
        "tokenizer_name": str(TOKENIZER),
        "train_file": str(scratch / "text.txt"),
        "validation_split_percentage": 0,
        "max_seq_length": length,
        "per_device_train_batch_size": 1,
        "max_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "cache_dir": str(scratch / "cache"),
        "output_dir": str(scratch / f"out-{length}"),
    }
    config = scratch / f"{length}.json"
    config.write_text(json.dumps(keys))
    subprocess.run([args.binary, "prepare", config], check=True, capture_output=True)
    env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    with open(scratch / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([args.binary, "train", config], stdout=log, stderr=log, env=env)
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit((scratch / "log").read_text()[-3000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def line_through(points):
    """Least squares: y = a + b x, and the largest |y - (a + b x)| / y."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    slope /= sum((x - mean_x) ** 2 for x, _ in points)
    start = mean_y - slope * mean_x
    return start, slope, max(abs(y - start - slope * x) / y for x, y in points)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096, 8192, 16384, 32768])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "long_context.json")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        long_lines(args.text, Path(folder))
        start, _ = run(args, 64, Path(folder))
        for length in args.lengths:
            seconds, peak = run(args, length, Path(folder))
            seconds = round(seconds - start, 2)
            rows.append({"tokens": length, "cpu_seconds": seconds, "peak_mib": round(peak, 1)})
            print(json.dumps(rows[-1]), flush=True)
    base, slope, worst = line_through([(row["tokens"], row["peak_mib"]) for row in rows])
    per_token = [(row["tokens"], row["cpu_seconds"] / row["tokens"]) for row in rows]
    linear, quadratic, worst_time = line_through(per_token)
    result = {
        "model": f"llama, 2 layers of {args.hidden}, 2 heads, 1 for keys",
        "rows": rows,
        "fit": {
            "peak_mib": {
                "constant": round(base, 1),
                "per_1024_tokens": round(1024 * slope, 2),
                "deviation": round(worst, 4),
            },
            "cpu_ms_per_token": {
                "constant": round(1e3 * linear, 4),
                "per_1024_tokens": round(1024e3 * quadratic, 4),
                "deviation": round(worst_time, 4),
            },
        },
    }
    print(json.dumps(result["fit"]))
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if worst > args.tolerance else 0


if __name__ == "__main__":
    sys.exit(main())
