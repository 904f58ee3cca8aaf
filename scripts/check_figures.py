#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Warns where measured figures are old: scripts/bench/results/first_loss.json, which holds what a new
user waits for, and the table of build times in docs/benchmarks.md, which names its date and commit.
Old means more than --days days or --commits commits.

    scripts/check_figures.py [--file FILE] [--page FILE] [--days 60] [--commits 150]

Exit code 1 with a line for each old figure and the command that measures it again.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_LOSS = "scripts/bench/first_loss.py {} (as root)"


def commits_since(commit):
    found = subprocess.run(["git", "-C", str(ROOT), "rev-list", "--count", f"{commit}..HEAD"],
                           capture_output=True, text=True)  # fmt: skip
    return int(found.stdout) if found.returncode == 0 else None


def age_of(date, commit, limits):
    """The age in words; empty where it is within the limits."""
    days = (datetime.date.today() - datetime.date.fromisoformat(date)).days
    commits = commits_since(commit)
    if commits is not None and commits > limits.commits:
        return f"{commits} commits"
    return f"{days} days" if days > limits.days else ""


def figures(arguments):
    """(what, date, commit, command that measures it again) of each."""
    table = arguments.page.read_text().partition("<!-- build:begin -->")[2].partition("<!-- build:end -->")[0]
    found = re.search(r"(\d{4}-\d\d-\d\d), commit ([0-9a-f]{7,40})\b", table)
    if not found:
        sys.exit(f"error: {arguments.page} names no date and commit of its build times")
    yield "build times", found[1], found[2], "scripts/bench/build_time.py"
    for row in json.loads(arguments.file.read_text()) if arguments.file.exists() else []:
        yield (f"seconds to the first loss of '{row['what']}'", row["date"], row["commit"],
               FIRST_LOSS.format(row["what"]))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "scripts/bench/results/first_loss.json")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/benchmarks.md")
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--commits", type=int, default=150)
    arguments = parser.parse_args()
    warnings = []
    if not arguments.file.exists():
        warnings.append(f"no seconds to the first loss were measured: {FIRST_LOSS.format('checkout')}")
    for what, date, commit, command in figures(arguments):
        age = age_of(date, commit, arguments)
        if age:
            warnings.append(f"the {what} are {age} old; measure again: {command}")
    for warning in warnings:
        print(f"warning: {warning}")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
