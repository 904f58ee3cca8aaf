#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that sources compile alone: as units (FINETUNE_UNITY) a missing include goes unnoticed.

    scripts/check_alone.py [--all | SOURCE...]   default: sources that differ from the branch main

Only the syntax is checked, with the compile commands of a build without units (build/alone).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/alone"


def commands():
    """Compile commands by source."""
    cache = ROOT / "build/CMakeCache.txt"
    found = re.search(r"^FINETUNE_PYTHON:\w+=(.*)$", cache.read_text(), re.M) if cache.exists() else None
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DFINETUNE_UNITY=OFF",
                    f"-DFINETUNE_PYTHON={found[1] if found else sys.executable}"],
                   check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {pathlib.Path(entry["file"]): entry["command"] for entry in entries}


def changed():
    names = subprocess.run(["git", "diff", "--name-only", "--diff-filter=d", "main", "--", "*.cpp"],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.splitlines()]


def check(command):
    words = shlex.split(command)
    at = words.index("-o")
    words = [word for word in words[:at] + words[at + 2:] if not word.endswith("/ccache.sh")]
    return subprocess.run([*words, "-fsyntax-only"], cwd=BUILD, capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("sources", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    known = commands()
    wanted = list(known) if args.all else [p.resolve() for p in args.sources] or changed()
    wanted = [path for path in wanted if path in known]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, result in zip(wanted, pool.map(lambda p: check(known[p]), wanted)):
            if result.returncode:
                bad += 1
                print(f"{path.relative_to(ROOT)} does not compile alone:\n{result.stderr}")
    print(f"{len(wanted) - bad} of {len(wanted)} sources compile alone")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
