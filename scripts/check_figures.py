#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Warns where measured figures are old: scripts/bench/results/first_loss.json, which holds what a new
user waits for. Old means more than --days days or --commits commits.

    scripts/check_figures.py [--file FILE] [--days 60] [--commits 150]

Exit code 1 with a line for each old figure and the command that measures it again.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def commits_since(commit):
    found = subprocess.run(["git", "-C", str(ROOT), "rev-list", "--count", f"{commit}..HEAD"],
                           capture_output=True, text=True)  # fmt: skip
    return int(found.stdout) if found.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--file", type=pathlib.Path, default=ROOT / "scripts/bench/results/first_loss.json")
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--commits", type=int, default=150)
    arguments = parser.parse_args()
    again = "scripts/bench/first_loss.py {} (as root)"
    if not arguments.file.exists():
        print(f"warning: no seconds to the first loss were measured: {again.format('checkout')}")
        return 1
    old = 0
    for row in json.loads(arguments.file.read_text()):
        days = (datetime.date.today() - datetime.date.fromisoformat(row["date"])).days
        commits = commits_since(row["commit"])
        age = f"{days} days" if days > arguments.days else ""
        if commits is not None and commits > arguments.commits:
            age = f"{commits} commits"
        if age:
            old += 1
            print(f"warning: the seconds to the first loss of '{row['what']}' are {age} old: "
                  + again.format(row["what"]))  # fmt: skip
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
