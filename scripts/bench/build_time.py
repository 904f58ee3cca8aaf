#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what a build costs, in CPU seconds (user + system, all child processes) without ccache.

    scripts/bench/build_time.py                         the binary, in a new build folder
    scripts/bench/build_time.py --target all            with all tests
    scripts/bench/build_time.py --only /data/ --target finetune_data
                                                        only the sources whose object's path matches
    scripts/bench/build_time.py --headers build         what a change of each header compiles again in that
                                                        build folder: objects, and their seconds when they
                                                        were last compiled (wall time, so in a build without ccache)
    scripts/bench/build_time.py -DFINETUNE_UNITY=OFF    further options go to CMake

sentencepiece is built in .deps and counted only where .deps does not have it yet.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def launch(log, command):
    """The compiler launcher: runs the compiler and appends one line to `log`."""
    code = subprocess.run(command).returncode
    seconds, memory = cpu_of_children()
    output = command[command.index("-o") + 1] if "-o" in command else command[-1]
    with open(log, "a") as file:
        file.write(json.dumps({"object": output, "seconds": seconds, "memory": memory}) + "\n")
    return code


def area_of(name):
    found = re.search(r"finetune_(\w+)\.dir|CMakeFiles/(\w+)\.dir", name)
    return (found[1] or found[2]) if found else "other"


def report(rows, total, wall):
    areas = {}
    for row in rows:
        areas.setdefault(area_of(row["object"]), []).append(row["seconds"])
    print(f"{'target':<28}{'objects':>8}{'CPU s':>9}{'largest':>9}")
    for area, seconds in sorted(areas.items(), key=lambda item: -sum(item[1])):
        print(f"{area:<28}{len(seconds):>8}{sum(seconds):>9.1f}{max(seconds):>9.1f}")
    compiled = sum(row["seconds"] for row in rows)
    print(f"{'compiled':<28}{len(rows):>8}{compiled:>9.1f}{max(row['seconds'] for row in rows):>9.1f}")
    print(f"{'all (links, sentencepiece)':<28}{'':>8}{total:>9.1f}")
    print(f"wall time: {wall:.0f} s; largest objects:")
    for row in sorted(rows, key=lambda row: -row["seconds"])[:12]:
        print(f"  {row['seconds']:6.1f} s {row['memory']:5.2f} GB  {row['object']}")


def objects_of(build, pattern):
    """The object files of the compile commands that match `pattern`."""
    entries = json.loads((build / "compile_commands.json").read_text())
    outputs = [re.search(r" -o (\S+)", entry["command"])[1] for entry in entries]
    return [output for output in outputs if re.search(pattern, output)]


def report_headers(build):
    seconds = {}
    for line in (build / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    objects_of_header = {}
    target = ""
    shown = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    for line in shown.splitlines():
        if not line.startswith(" "):
            target = line.split(":")[0]
        elif line.endswith(".h"):
            header = os.path.relpath(os.path.join(build, line.strip()), ROOT)
            if not header.startswith(("..", ".deps", ".venv", "build")):
                objects_of_header.setdefault(header, []).append(target)
    print(f"{'header':<52}{'objects':>8}{'s':>9}")
    rows = [(sum(seconds.get(name, 0) for name in names), len(names), header) for header, names in objects_of_header.items()]
    for total, count, header in sorted(rows, reverse=True)[:40]:
        print(f"{header:<52}{count:>8}{total:>9.1f}")
    print(f"{'all objects':<52}{len(seconds):>8}{sum(seconds.values()):>9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="Ninja targets (default: finetune)")
    parser.add_argument("--only", metavar="REGEX", help="compile only objects whose path matches")
    parser.add_argument("--headers", metavar="BUILD", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path,
                        help="build folder (default: a temporary one, removed afterwards)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args, options = parser.parse_known_args()
    if args.headers:
        return report_headers(args.headers)
    targets = args.target or ["finetune"]
    build = args.build or pathlib.Path(tempfile.mkdtemp(prefix="finetune_build_time_"))
    build.mkdir(parents=True, exist_ok=True)
    log = build / "build_time.jsonl"
    log.unlink(missing_ok=True)
    python = ROOT / ".venv/bin/python"
    launcher = f"{sys.executable};-S;{pathlib.Path(__file__).resolve()};--launch;{log}"
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    begin = time.monotonic()
    try:
        subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DFINETUNE_CCACHE=OFF",
                        f"-DFINETUNE_PYTHON={python if python.exists() else sys.executable}",
                        f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", *options],
                       check=True, env=environment, stdout=subprocess.DEVNULL)
        wanted = objects_of(build, args.only) if args.only else targets
        ninja = ["ninja", "-C", build, "-k", "0", "-j", str(args.jobs), *wanted]
        code = subprocess.run(ninja, env=environment, stdout=sys.stderr).returncode
        rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if rows:
            report(rows, cpu_of_children()[0], time.monotonic() - begin)
        return code
    finally:
        if not args.build:
            shutil.rmtree(build)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(sys.argv[2], sys.argv[3:]))
    sys.exit(main())
