#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures finetune, transformers and the limit of the machine, or guards against regressions.

    python3 scripts/bench                   every bench
    python3 scripts/bench NAME...           these; --list names them
    python3 scripts/bench --check           compares instruction counts and peak memory of four small runs with
                                            stored figures (results/regression.json), within 3 %
    python3 scripts/bench --check --record  stores them instead

A bench builds what it needs, sets up the peers (tests/requirements.txt, in .venv), checks that both programs compute
the same loss, and runs both alternately. Results with machine, date and commit go to --output: bench.json, bench.md
and bench.svg. Run it on a quiet machine: a table made under load says so, and its seconds are not results.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import growth  # noqa: E402
import regression  # noqa: E402
import speed  # noqa: E402
from memory import machine  # noqa: E402


def part(script, *words, target=None):
    """A bench that is a script of this folder: it prints its own table, which the page quotes."""

    def measure(bench):
        if target:
            subprocess.run(["ninja", "-C", bench.args.build, target], check=True, stdout=sys.stderr)
        filled = [str(w).format(data=bench.args.data, threads=bench.args.threads) for w in words]
        done = subprocess.run([bench.args.python, HERE / script, *filled], text=True, stdout=subprocess.PIPE)
        if done.returncode != 0:
            raise SystemExit(f"error: {script} exited with {done.returncode}")
        return {"title": script, "table": done.stdout}

    return measure


def saves(bench):
    found = part("saves.py", "--repeats", 1, "--saves", 3, "--save_steps", 100, target="saves_benchmark")(bench)
    found["table"] = subprocess.run([bench.args.python, HERE / "saves.py", "--report"], text=True, check=True,
                                    stdout=subprocess.PIPE).stdout  # fmt: skip
    return found


def tokenising(bench):
    found = part("data.py", "--data", "{data}", "--only_tokenizers", target="data_benchmark")(bench)
    found["table"] = subprocess.run([bench.args.python, HERE / "data.py", "--report"], text=True, check=True,
                                    stdout=subprocess.PIPE).stdout  # fmt: skip
    return found


def corpus(bench):
    """The time of `prepare` on a corpus: the first time, and again from the token cache."""
    found = part("token_cache.py", "--data", "{data}", "--binary", bench.args.binary, "--threads", "{threads}",
                 "--megabytes", 10 if bench.args.quick else 100, "--parts", "whole")(bench)  # fmt: skip
    lines = ["| text, MB | s | CPU s | MB a CPU s | again, s | again, CPU s | peak MiB |", "|---|---|---|---|---|---|---|"]
    for row in json.loads(found["table"])["build"]:
        figures = ("mb", "seconds", "cpu_seconds", "mb_per_cpu_second", "again_seconds", "again_cpu_seconds", "peak_mb")
        lines.append("| " + " | ".join(f"{row[f]:,}" for f in figures) + " |")
    return {**found, "measured": json.loads(found["table"]), "table": "\n".join(lines)}


# Name: what measures it, minutes on two quiet cores.
BENCHES = {
    **{name: ((lambda bench, name=name: speed.training(bench, name)), 6) for name in speed.TRAININGS},
    "start": (speed.start, 1),
    "resume": (speed.resume, 4),
    "predict": (speed.prediction, 3),
    "evaluate": (speed.evaluation, 3),
    "saves": (saves, 5),
    "tokenise": (tokenising, 10),
    "corpus": (corpus, 2),
    "attention": (part("bigbird.py", "--lengths", "--runs", 1, target="bigbird_benchmark"), 4),
    "growth": (growth.measure, 10),
}


def set_up(args):
    """Builds the binary and sets `args.python`, as scripts/test does."""
    if args.binary is None:
        subprocess.run([ROOT / "scripts" / "build"], check=True, stdout=sys.stderr)
        args.binary = args.build / "finetune"
    if args.python is None:
        shell = f'source "{ROOT}/scripts/setup.sh"; ensure_torch; ensure_test_python; echo "$test_python"'
        found = subprocess.run(["bash", "-c", shell], check=True, text=True, stdout=subprocess.PIPE).stdout
        args.python = found.strip().splitlines()[-1]


def about(args):
    code = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    peers = subprocess.run([args.python, "-c", code], check=True, text=True, stdout=subprocess.PIPE).stdout.split()
    return {
        **machine(),
        "threads": args.threads,
        "torch": peers[0],
        "transformers": peers[1],
        "date": datetime.date.today().isoformat(),
        "commit": regression.commit(),
        "load": round(os.getloadavg()[0], 2),
    }


def middle(row, program):
    return statistics.median(row[program][row["figure"]])


def table(results):
    head = results["about"]
    load = max([head["load"], *(row["load"] for row in results["rows"].values())])
    lines = [
        f"{head['date']}, commit {head['commit']}, {head['cpu']}, {head['threads']} threads, torch {head['torch']}, "
        f"transformers {head['transformers']}, load at most {load}. Medians of alternating runs.",
        "",
    ]
    if load > 1.5 * head["threads"]:
        lines[0] += " **Measured on a busy machine: ratios of CPU seconds can be read, seconds cannot.**"
    lines += ["| | finetune | transformers | ratio | limit | finetune to the limit | limit is | peak MiB |",
              "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in results["rows"].values():
        if "figure" not in row:
            continue
        mine, theirs = middle(row, "finetune"), middle(row, "transformers")
        peaks = [f"{max(row[p]['peak_mib']):,.0f}" for p in ("finetune", "transformers") if row[p].get("peak_mib")]
        lines.append(
            f"| {row['title']}, {row['unit']} | {mine:.4g} | {theirs:.4g} | {theirs / mine:.2f} | {row['limit']:.4g} "
            f"| {mine / row['limit']:.2f} | {row['limit_is']} | {' and '.join(peaks)} |"
        )
    for name, row in results["rows"].items():
        if "table" in row:
            lines += ["", f"## {name}", "", row["table"].rstrip()]
    return "\n".join(lines) + "\n"


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in results["rows"].values() if "figure" in row]
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(8, 0.6 * len(rows) + 1.4))
    for at, row in enumerate(rows):
        limit = row["limit"]
        for offset, program, colour in ((-0.2, "finetune", "#1769aa"), (0.2, "transformers", "#b0b0b0")):
            axes.barh(at + offset, middle(row, program) / limit, height=0.38, color=colour,
                      label=program if at == 0 else None)  # fmt: skip
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), [row["title"] for row in rows])
    axes.invert_yaxis()
    head = results["about"]
    axes.set_xlabel(f"multiples of the limit of the same machine ({head['cpu']}, {head['date']}, {head['commit']})")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches (default: all)")
    parser.add_argument("--list", action="store_true", help="print the benches and their minutes")
    parser.add_argument("--check", action="store_true", help="the regression guard")
    parser.add_argument("--record", action="store_true", help="with --check: store the figures")
    parser.add_argument("--figures", type=Path, default=regression.FIGURES, help="with --check: the stored figures")
    parser.add_argument("--measured", type=Path, help="with --check: figures of an earlier --save, not measured again")
    parser.add_argument("--save", type=Path, help="with --check: keep what was measured in this file")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="build folder (default: %(default)s)")
    parser.add_argument("--binary", type=Path, help="of finetune (default: built into --build)")
    parser.add_argument("--python", help="with torch and transformers (default: set up in .venv)")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data",
                        help="folder of esperanto.txt and JGLUE's files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench", help="folder (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both programs (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both programs (default: all cores)")
    parser.add_argument("--quick", action="store_true", help="few updates: to try the benches, not to measure")
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:15} about {minutes} minutes" for name, (_, minutes) in BENCHES.items()))
        return 0
    if args.check:
        known = ("mlm", "classification", "predict", "corpus")
        if wrong := [name for name in args.names if name not in known]:
            parser.error(f"--check has no run '{wrong[0]}'; its runs: {', '.join(known)}")
        binary = (args.binary or args.build / "finetune").resolve()
        if not args.measured and not binary.is_file():
            parser.error(f"{binary} does not exist: build it (scripts/build) or name it with --binary")
        return regression.check(binary, args.figures, args.record, args.measured, args.save, args.names)
    if wrong := [name for name in args.names if name not in BENCHES]:
        parser.error(f"there is no bench '{wrong[0]}'; benches: {', '.join(BENCHES)}")
    set_up(args)
    args.output.mkdir(parents=True, exist_ok=True)
    results, failed = {"about": about(args), "rows": {}}, []
    with tempfile.TemporaryDirectory(prefix="finetune-bench-") as scratch:
        bench = speed.Bench(args, Path(scratch))
        for name in args.names or BENCHES:
            print(f"==> {name}", file=sys.stderr)
            try:
                results["rows"][name] = {**BENCHES[name][0](bench), "load": round(os.getloadavg()[0], 2)}
            except SystemExit as failure:  # the others still count
                print(failure, file=sys.stderr)
                failed.append(name)
                continue
            # After each bench, so that an interrupted run keeps the finished ones.
            (args.output / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
            (args.output / "bench.md").write_text(table(results))
    plot(results, args.output / "bench.svg")
    print(table(results))
    print(f"written: {args.output}/bench.json, bench.md, bench.svg", file=sys.stderr)
    if failed:
        print(f"error: not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
