#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures finetune, transformers and the limit of the machine, or guards against regressions.

    python3 scripts/bench                   every bench
    python3 scripts/bench NAME...           these; --list names them
    python3 scripts/bench --keep NAME...    these, and keeps the figures of the others in --output
    python3 scripts/bench --document        puts tables and figures of --output into docs/benchmarks.md
    python3 scripts/bench --check           compares instruction counts and peak memory of four small runs with
                                            stored figures (results/regression.json), within 3 %
    python3 scripts/bench --check --record  stores them instead

A bench builds what it needs, sets up the peers (tests/requirements.txt, in .venv), checks that both programs compute
the same loss, and runs both alternately. Results with machine, date and commit go to --output: bench.json, bench.md
and bench.svg. A bench that fails is named in them, and the others still run. Run it on a quiet machine: a table made under load says so, and its seconds are not results.
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
PAGE = ROOT / "docs" / "benchmarks.md"
sys.path.insert(0, str(HERE))

import growth  # noqa: E402
import plots  # noqa: E402
import regression  # noqa: E402
import speed  # noqa: E402
from memory import machine  # noqa: E402


def part(script, *words, target=None, quick=(), results=None, report=()):
    """A bench that is a script of this folder: the page quotes the table that it prints.

    `quick` replaces `words` with --quick, whose figures go to a temporary file instead of `results`. `report`: the
    options that print the table, where measuring prints something else.
    """

    def measure(bench):
        if target:
            subprocess.run(["ninja", "-C", bench.args.build, target], check=True, stdout=sys.stderr)
        to = bench.folder / Path(results or "").name if bench.args.quick else results
        to = ["--results", str(to).format(output=bench.args.output)] if results else []
        chosen = quick if bench.args.quick and quick else words
        filled = [str(w).format(data=bench.args.data, threads=bench.args.threads) for w in chosen] + to
        done = subprocess.run([bench.args.python, HERE / script, *filled], text=True, stdout=subprocess.PIPE)
        if done.returncode == 0 and report:
            done = subprocess.run([bench.args.python, HERE / script, *report, *to], text=True,
                                  stdout=subprocess.PIPE)  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"error: {script} exited with {done.returncode}")
        return {"title": script, "table": done.stdout}

    return measure


saves = part(
    "saves.py", "--repeats", 1, "--saves", 3, "--save_steps", 100, target="saves_benchmark",
    quick=("--repeats", 1, "--saves", 2, "--save_steps", 5), results=HERE / "results" / "saves.jsonl",
    report=["--report"],
)  # fmt: skip
tokenising = part(
    "data.py", "--data", "{data}", "--only_tokenizers", target="data_benchmark",
    quick=("--data", "{data}", "--only_tokenizers", "--megabytes", 4, "--peer_megabytes", 1, "--turns", 1),
    results=HERE / "results" / "data.json", report=["--report", "--only_tokenizers"],
)  # fmt: skip
# One length of those of docs/long-documents.md, whose figures this leaves as they are.
attention = part(
    "bigbird.py", "--lengths", "--runs", 1, target="bigbird_benchmark",
    quick=("--lengths", "--runs", 1, "--repeats", 1, "--tokens", 1024), results="{output}/bigbird.jsonl",
    report=["--report"],
)  # fmt: skip


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
    "evaluate-run-glue": ((lambda bench: speed.evaluation(bench, "run-glue")), 3),
    "generation": (speed.generation, 4),
    "saves": (saves, 5),
    "tokenise": (tokenising, 10),
    "corpus": (corpus, 2),
    "attention": (attention, 4),
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


def summary(results):
    """The table of all benches that compare with transformers."""
    head = results["about"]
    load = max([head["load"], *(row["load"] for row in results["rows"].values())])
    commits = sorted({row["commit"] for row in results["rows"].values()} or {head["commit"]})
    dates = sorted({row["date"] for row in results["rows"].values()} or {head["date"]})
    lines = [
        f"{' and '.join(dates)}, commit {' and '.join(commits)}, {head['cpu']}, {head['threads']} threads, "
        f"torch {head['torch']}, transformers {head['transformers']}, load at most {load}. Medians of alternating runs.",
        "",
    ]
    if load > 1.5 * head["threads"]:
        lines[0] += " **Measured on a busy machine: ratios of CPU seconds can be read, seconds cannot.**"
    compared = [row for row in results["rows"].values() if "figure" in row]
    if compared:
        lines += ["| | finetune | transformers | ratio | limit | finetune to the limit | limit is | peak MiB |",
                  "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in compared:
        mine, theirs = middle(row, "finetune"), middle(row, "transformers")
        peaks = [f"{max(row[p]['peak_mib']):,.0f}" for p in ("finetune", "transformers") if row[p].get("peak_mib")]
        lines.append(
            f"| {row['title']}, {row['unit']} | {mine:.4g} | {theirs:.4g} | {theirs / mine:.2f} | {row['limit']:.4g} "
            f"| {mine / row['limit']:.2f} | {row['limit_is']} | {' and '.join(peaks)} |"
        )
    return "\n".join(lines) + "\n"


def table(results):
    lines = [summary(results)]
    for name, row in results["rows"].items():
        if "table" in row:
            lines += [f"## {name}", "", row["table"].rstrip(), ""]
        if "error" in row:
            lines += [f"**{name} failed:** {row['error'].splitlines()[0]}", ""]
    return "\n".join(lines)


def plot(results, path):
    head = results["about"]
    rows = [(row["title"], middle(row, "finetune") / row["limit"], middle(row, "transformers") / row["limit"])
            for row in results["rows"].values() if "figure" in row]  # fmt: skip
    if rows:
        plots.bars(rows, f"{head['cpu']}, {head['date']}, commit {head['commit']}", path)


def replace_block(page, name, content):
    """The page with `content` between the markers NAME:begin and NAME:end, which must be there."""
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"error: the page has no '{begin.strip()}' followed by '{end}'")
    return before + begin + content.rstrip() + "\n" + end + after


def read_results(folder):
    """The results of an earlier run. Rows without date and commit were all measured in that run."""
    results = json.loads((folder / "bench.json").read_text())
    when = {key: results["about"][key] for key in ("date", "commit")}
    results["rows"] = {name: {**when, **row} for name, row in results["rows"].items()}
    return results


def document(folder, page_file):
    """Puts tables and figures of --output into the page: only blocks of benches that were measured change."""
    results = read_results(folder)
    page = page_file.read_text(encoding="utf-8")
    rows = results["rows"]
    if failed := [name for name, row in rows.items() if "error" in row]:
        raise SystemExit(f"error: {failed[0]} failed, so its figures are missing; measure it again with --keep")
    if any("figure" in row for row in rows.values()):
        plot(results, page_file.parent / "bench.svg")
        content = summary(results) + "\n![finetune and transformers, in multiples of the limit](bench.svg)\n"
        page = replace_block(page, "bench", content)
    for name, row in rows.items():
        if "table" not in row:
            continue
        content = f"{row['table'].rstrip()}\n\n{row['date']}, commit {row['commit']}.\n"
        if name == "growth":
            growth.draw(row["curves"], page_file.parent / "growth.svg")
            content += "\n![Cost over size, each doubled four times](growth.svg)\n"
        page = replace_block(page, f"bench-{name}", content)
    page_file.write_text(page, encoding="utf-8")
    print(f"written: {page_file}")
    return 0


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches (default: all)")
    parser.add_argument("--list", action="store_true", help="print the benches and their minutes")
    parser.add_argument("--keep", action="store_true", help="keep figures of benches that are not run")
    parser.add_argument("--document", action="store_true", help="write --output's figures into --page")
    parser.add_argument("--page", type=Path, default=PAGE, help="with --document (default: %(default)s)")
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
    if args.document:
        return document(args.output, args.page)
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
    results = {"about": about(args), "rows": {}}
    if args.keep and (args.output / "bench.json").is_file():
        results["rows"] = read_results(args.output)["rows"]
    with tempfile.TemporaryDirectory(prefix="finetune-bench-") as scratch:
        bench = speed.Bench(args, Path(scratch))
        for name in args.names or BENCHES:
            print(f"==> {name}", file=sys.stderr)
            try:
                row = BENCHES[name][0](bench)
            except (SystemExit, Exception) as error:
                row = {"error": str(error) or repr(error)}
                print(error, file=sys.stderr)
            when = {key: results["about"][key] for key in ("date", "commit")}
            results["rows"][name] = {**row, "load": round(os.getloadavg()[0], 2), **when}
            # After each bench, so that an interrupted run keeps the finished ones.
            (args.output / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
            (args.output / "bench.md").write_text(table(results))
            plot(results, args.output / "bench.svg")
    print(table(results))
    print(f"written: {args.output}/bench.json, bench.md, bench.svg", file=sys.stderr)
    return 1 if any("error" in row for row in results["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
