#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Merges the counts of one soak into scripts/bench/results/reliability.json.

  reliability_merge.py RESULTS_FOLDER [--commit COMMIT] [--into FILE]
  reliability_merge.py --next_seed PREFIX    a seed that no row beginning with PREFIX has used

RESULTS_FOLDER holds one JSON file a row; merged files are removed, so that nothing counts twice. A
row of random cases that scripts/soak repeats for hours accumulates: cases, failures and seconds are
added to those of the same row and commit, and its seeds are listed. Of every other row, whose seed
repeats the same cases, the newest counts replace the earlier ones.
"""

import argparse
import json
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "reliability.json"
ACCUMULATED = ("R2.starts ", "R2.forks ", "R4.disks ", "R19 ", "R27 kills")


def load(path):
    return json.loads(path.read_text())["rows"] if path.exists() else []


def accumulates(row):
    return row["row"].startswith(ACCUMULATED)


def key_of(row):
    return (row["row"], row.get("commit", "") if accumulates(row) else "")


def seeds_of(row):
    return row["seeds"] if "seeds" in row else [row["seed"]]


def added(old, new):
    """Counts of both; the new one is of other seeds."""
    both = set(seeds_of(old)) & set(seeds_of(new))
    if both:
        raise ValueError(f"{new['row']} at {new['commit']} has counts of seed {min(both)} already")
    merged = {**new, "seeds": sorted({*seeds_of(old), *seeds_of(new)})}
    merged.pop("seed", None)
    for count in ("cases", "failures", "seconds"):
        merged[count] = old[count] + new[count]
    merged["seconds"] = round(merged["seconds"], 1)
    return merged


def merge(rows, found):
    kept = {key_of(row): row for row in rows}
    for row in found:
        old = kept.get(key_of(row))
        kept[key_of(row)] = added(old, row) if old and accumulates(row) else row
    return sorted(kept.values(), key=lambda row: (number(row["row"]), key_of(row)))


def number(row):
    digits = "".join(c for c in row.split(".")[0].split(" ")[0] if c.isdigit())
    return int(digits or 99)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--commit", default="", help="of rows that do not name theirs")
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("--next_seed", metavar="PREFIX")
    args = parser.parse_args()
    rows = load(args.into)
    if args.next_seed is not None:
        used = [s for r in rows if r["row"].startswith(args.next_seed) for s in seeds_of(r)]
        print(max(used, default=0) + 1)
        return 0
    if args.folder is None:
        parser.error("RESULTS_FOLDER is missing")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    files = sorted(args.folder.glob("*.json"))
    found = [json.loads(path.read_text()) for path in files]
    for row in found:
        if args.commit:
            row.setdefault("commit", args.commit)
        row.setdefault("date", today)
    staging = args.into.with_suffix(".tmp")
    staging.write_text(json.dumps({"rows": merge(rows, found)}, indent=1) + "\n")
    staging.rename(args.into)
    for path in files:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
