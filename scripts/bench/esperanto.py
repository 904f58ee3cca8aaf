#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains configs/esperberto_small.yaml with the binary and compares it with transformers' Trainer.

Runs seeds 1, 2 and 3, one thread each, as scripts/bench/esperanto_peer.py did for results/
esperanto_peer.json; prints a Markdown table, writes results/esperanto.json, and draws both
evaluation curves into docs/esperanto.svg. Exits 1 when our mean final evaluation loss is outside
the peer's spread.

Needs nothing but the standard library. Every final model is evaluated on the same number of
further sets of masks as the peer's, because masks, and with them the loss, are random.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MASKED = [
    "La <mask> estas bela.",
    "Mi amas la <mask>.",
    "Li diris, ke li ne <mask>.",
    "Esperanto estas <mask> lingvo.",
    "En la urbo estas multaj <mask>.",
]


def run(command, env):
    """(seconds, CPU seconds, peak resident bytes, standard output) of one process."""
    start = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[1]} failed with exit code {process.returncode}")
    seconds = time.monotonic() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output


def train_seed(args, seed, work, env):
    output = work / f"seed-{seed}"
    overrides = [
        "--seed", seed, "--output_dir", output, "--tokenizer_name", work / "tokenizer",
        "--cache_dir", work / "cache", "--save_strategy", "no",
    ]  # fmt: skip
    if args.max_steps:
        overrides += ["--max_steps", args.max_steps]
    seconds, cpu, peak, _ = run([args.binary, "train", args.config, *overrides], env)
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    curve = [{"step": r["step"], "eval_loss": r["eval_loss"]} for r in log if "eval_loss" in r]
    extra = []
    for i in range(args.extra_evaluations):
        evaluation = {
            "model_name_or_path": str(output),
            "validation_file": str(args.data / "esperanto-valid.txt"),
            "output_dir": str(work / "evaluation"),
            "cache_dir": str(work / "cache"),
            "max_seq_length": 128,
            "per_device_eval_batch_size": 16,
            "seed": 1000 + i,
        }
        path = work / "evaluation.json"
        path.write_text(json.dumps(evaluation))
        run([args.binary, "evaluate", path], env)
        results = json.loads((work / "evaluation" / "eval_results.json").read_text())
        extra.append(results["eval_loss"])
    return {
        "seed": seed,
        "eval_loss": curve[-1]["eval_loss"],
        "extra_eval_losses": extra,
        "eval_curve": curve,
        "loss_curve": [{"step": r["step"], "loss": r["loss"]} for r in log if "loss" in r],
        "process_seconds": seconds,
        "process_cpu_seconds": cpu,
        "train_seconds": next(r["train_runtime"] for r in log if "train_runtime" in r),
        "peak_rss_bytes": peak,
    }


def fill_masks(args, work, env):
    command = [args.binary, "predict", work / f"seed-{args.seeds[0]}"]
    for text in MASKED:
        command += ["--text", text]
    *_, output = run(command, env)
    return [json.loads(line) for line in output.decode().splitlines()]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def finals(runs):
    return [x for r in runs for x in (r["eval_loss"], *r["extra_eval_losses"])]


def cpu_seconds(run_):
    """Ours counts the whole process, the peer's only trainer.train(): start-up is against us."""
    return run_.get("process_cpu_seconds") or run_["train_cpu_seconds"]


def table(ours, peer):
    lines = ["| | finetune | transformers |", "|---|---|---|"]
    for mine, theirs in zip(ours, peer):
        assert mine["seed"] == theirs["seed"]
        lines.append(
            f"| evaluation loss, seed {mine['seed']} "
            f"| {mean(finals([mine])):.3f} | {mean(finals([theirs])):.3f} |"
        )
    rows = [
        ("evaluation loss, mean", lambda r: f"{mean(finals(r)):.3f}"),
        ("evaluation loss, spread", lambda r: f"{min(finals(r)):.3f} to {max(finals(r)):.3f}"),
        ("CPU seconds of training, mean", lambda r: f"{mean(map(cpu_seconds, r)):.0f}"),
        ("peak memory, MiB", lambda r: f"{max(x['peak_rss_bytes'] for x in r) / 2**20:.0f}"),
    ]
    lines += [f"| {name} | {value(ours)} | {value(peer)} |" for name, value in rows]
    return "\n".join(lines)


def draw(ours, peer, path):
    """An SVG with one thin line for each run, readable on a light and on a dark page."""
    width, height, left, right, top, bottom = 720, 360, 56, 16, 20, 44
    points = [p for r in ours + peer for p in r["eval_curve"]]
    last = max(p["step"] for p in points)
    losses = [p["eval_loss"] for p in points]
    low, high = min(losses), max(losses)
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)

    def x(step):
        return left + (width - left - right) * step / last

    def y(loss):
        return top + (height - top - bottom) * (high - loss) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12" fill="#808080">',
        "<title>Evaluation loss of the small EsperBERTo: finetune and transformers</title>",
    ]
    for i in range(6):
        loss = low + (high - low) * i / 5
        out.append(
            f'<path d="M{left} {y(loss):.1f}H{width - right}" stroke="#80808040"/>'
            f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>'
        )
    for i in range(5):
        step = last * i // 4
        out.append(
            f'<text x="{x(step):.1f}" y="{height - bottom + 18}" '
            f'text-anchor="middle">{step}</text>'
        )
    out.append(f'<text x="{left}" y="{height - 8}">updates</text>')
    out.append(f'<text x="{left}" y="{top - 6}">evaluation loss</text>')
    for index, (runs, colour, name) in enumerate(
        [(peer, "#e0803c", "transformers"), (ours, "#3c80e0", "finetune")]
    ):
        for run_ in runs:
            curve = [(x(p["step"]), y(p["eval_loss"])) for p in run_["eval_curve"]]
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py in curve)
            out.append(
                f'<polyline points="{line}" fill="none" stroke="{colour}" '
                'stroke-width="1.6" stroke-opacity="0.85"/>'
            )
        at = width - right - 150
        out.append(
            f'<path d="M{at} {top + 16 + 18 * index}h24" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{at + 32}" y="{top + 20 + 18 * index}">{name}, {len(runs)} seeds</text>'
        )
    out.append("</svg>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "esperberto_small.yaml")
    data = os.environ.get("ESPERANTO_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max_steps", type=int, help="fewer updates, to try the script out")
    parser.add_argument("--extra_evaluations", type=int, default=5)
    parser.add_argument("--work_dir", type=Path, help="keep models and logs here")
    parser.add_argument("--peer", type=Path, default=HERE / "results" / "esperanto_peer.json")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "esperanto.json")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "esperanto.svg")
    parser.add_argument("--draw_only", action="store_true", help="table and SVG from --output")
    args = parser.parse_args()
    peer = json.loads(args.peer.read_text())["runs"]
    if not args.draw_only:
        if args.data is None:
            parser.error("name the folder of esperanto.txt with --data or ESPERANTO_DATA")
        with tempfile.TemporaryDirectory(prefix="esperanto-") as scratch:
            args.data = args.data.resolve()
            result = measure(args, (args.work_dir or Path(scratch)).resolve())
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    result = json.loads(args.output.read_text())
    ours = result["runs"]
    peer = [r for r in peer if r["seed"] in [x["seed"] for x in ours]]
    draw(ours, peer, args.svg)
    print(table(ours, peer))
    for text, fillings in zip(MASKED, result["filled_masks"]):
        best = ", ".join(f"{f['token_str'].strip()} {f['score']:.3f}" for f in fillings[:3])
        print(f"\n{text} {best}")
    low, high = min(finals(peer)), max(finals(peer))
    loss = mean(finals(ours))
    inside = low <= loss <= high
    print(f"\nmean {loss:.4f} {'within' if inside else 'OUTSIDE'} {low:.4f} to {high:.4f}")
    return 0 if inside else 1


def measure(args, work):
    work.mkdir(parents=True, exist_ok=True)
    threads = str(args.threads)
    env = dict(os.environ, ESPERANTO_DATA=str(args.data), OMP_NUM_THREADS=threads)
    run([args.binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", 4000,
         "--output", work / "tokenizer", args.data / "esperanto.txt"], env)  # fmt: skip
    runs = []
    for seed in args.seeds:
        print(f"seed {seed} ...", file=sys.stderr)
        runs.append(train_seed(args, seed, work, env))
    return {"threads": args.threads, "runs": runs, "filled_masks": fill_masks(args, work, env)}


if __name__ == "__main__":
    sys.exit(main())
