#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints a regular expression of the ctest entries that cover areas of src/ (tests/areas.txt), for scripts/test AREA...

  scripts/area_tests.py BUILD_DIR AREA...
  scripts/area_tests.py BUILD_DIR --check   every pattern of tests/areas.txt names an entry
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def areas():
    found = {}
    for line in (ROOT / "tests" / "areas.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            area, *patterns = line.split()
            found[area] = [re.escape(area), *patterns]
    return found


def main():
    build, words = sys.argv[1], sys.argv[2:]
    known = areas()
    unknown = [word for word in words if word not in known and word != "--check"]
    if unknown or not words:
        sys.exit(f"error: no area is called '{' '.join(unknown)}'; there are {', '.join(known)}")
    if words != ["--check"]:
        print("^(" + "|".join(pattern for word in words for pattern in known[word]) + ")$")
        return
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    names = [test["name"] for test in json.loads(shown.stdout)["tests"]]
    tested_by_runs = {"cli", "runs"}  # without an entry of their name
    stale = [
        f"{area}: {pattern}"
        for area, patterns in known.items()
        for pattern in patterns
        if pattern not in tested_by_runs and not any(re.fullmatch(pattern, name) for name in names)
    ]
    if stale:
        sys.exit("error: tests/areas.txt names no test with " + "; ".join(stale))


if __name__ == "__main__":
    main()
