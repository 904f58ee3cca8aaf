#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that sources and headers compile alone: as units (FINETUNE_UNITY) a missing include goes unnoticed.

    scripts/check_alone.py [--all | --headers | FILE...]   default: files that differ from the branch main

Only the syntax is checked, with the compile commands of a build without units (build/alone). A header
is compiled with the command of a source of its area. --all is every source and header, --headers
every header. Needs CMake, Ninja, a compiler, the libraries' headers and torch (scripts/build installs
them); FINETUNE_PYTHON names the interpreter that has torch.
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
                    f"-DFINETUNE_PYTHON={os.environ.get('FINETUNE_PYTHON') or (found[1] if found else sys.executable)}"],
                   check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {pathlib.Path(entry["file"]): entry["command"] for entry in entries}


def changed():
    names = subprocess.run(["git", "diff", "--name-only", "--diff-filter=d", "main", "--", "*.cpp", "*.h"],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in names.splitlines()]


def headers():
    # Headers of device/ are compiled by NVRTC, which has no host includes.
    found = [path for folder in ("include", "src", "tests") for path in (ROOT / folder).rglob("*.h")]
    return sorted(path for path in found if path.parent != ROOT / "src/kernels/cuda/device")


def area_of(path):
    """The folder of src/ or tests/ whose compile options apply to a header or a source."""
    parts = path.relative_to(ROOT).parts
    return ("src", parts[2]) if parts[0] == "include" else parts[:2]


def command_for(header, known):
    """The command of the nearest source of the same area; None if the area has no source."""
    area = [path for path in sorted(known) if path.is_relative_to(ROOT) and area_of(path) == area_of(header)]
    area.sort(key=lambda path: path.parent != header.parent)
    return known[area[0]] if area else None


def check(path, known):
    command = known[path] if path in known else command_for(path, known)
    words = shlex.split(command)
    at = words.index("-o")
    words = words[:at] + words[at + 2:]
    text = None
    if path not in known:
        words = [*words[:words.index("-c")], "-x", "c++", "-"]
        text = f'#include "{path}"\n'
    return subprocess.run([*words, "-fsyntax-only"], cwd=BUILD, capture_output=True, text=True, input=text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--headers", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    known = commands()
    if args.all or args.headers:
        wanted = [*(known if args.all else []), *headers()]
    else:
        wanted = [p.resolve() for p in args.files] or changed()
    wanted = [path for path in wanted if path in known or (path in headers() and command_for(path, known))]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, result in zip(wanted, pool.map(lambda p: check(p, known), wanted)):
            if result.returncode:
                bad += 1
                print(f"{path.relative_to(ROOT)} does not compile alone:\n{result.stderr}")
    print(f"{len(wanted) - bad} of {len(wanted)} files compile alone")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
