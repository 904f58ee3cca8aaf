#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the table of docs/reliability.md from what scripts/soak and reliability_peer.py measured."""

import json
import re
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
WHAT = {
    "R1": "killed before, inside and after every change of a whole run to the disk",
    "R2": "`kill -9` at random times, up to 20 a run, other options after each",
    "R2.starts": "`kill -9` of a session, its first process, a child, or after SIGTERM; 17 "
    "configurations (several processes, ZeRO, mirror, 8-bit, best model, ...)",
    "R2.forks": "the same, sessions in forks of a warm process",
    "R3": "killed while deleting, resuming, sweeping",
    "R4": "power cuts: unsynced data lost, zeroed, halved, in any order; unsynced names lost or kept",
    "R4.disks": "power cuts of real ext4 (ordered, writeback, noauto_da_alloc), xfs and btrfs: the disk "
    "as it was at a moment, its cache kept, lost or lost in part",
    "R5": "disk full, for a moment or for good",
    "R6": "I/O errors, short writes, interrupted calls at every call",
    "R7": "reads that fail while resuming",
    "R8": "SIGTERM, SIGINT, SIGUSR1 in every phase; a second one",
    "R9": "`kill -9` some time after SIGTERM",
    "R10": "bit flips, insertions, truncation, zeroed pages, swapped and missing files, every file",
    "R11": "output folder read-only, removed, replaced, renamed, limited",
    "R12": "two processes in one output folder",
    "R15": "clock jumps by an hour to ten years; times of files at random",
    "R16": "allocations that fail, address space that ends",
    "R17": "NaN or Inf, in a loss, gradient, weight or optimizer state, each policy",
    "R18": "a mirror like Google Drive: late, non-atomic, failing",
    "R19": "fuzzed readers, executions under sanitizers",
    "R20": "damaged safetensors files, against the reference's reader",
    "R21": "slow disks",
    "R22": "six random faults in a row",
    "R24": "checkpoints of earlier format versions",
    "R25": "damage to a finished run and its mirror, kills while it is repaired",
    "R27": "a mirror in a bucket: `kill -9` with the local disk lost, a store that fails in 20 ways, two machines at once",
}


def number(row):
    """The line of the table that a row's counts belong to."""
    name = row.split(" ")[0]
    return name if name in WHAT else re.match(r"R\d+", row)[0]


def load(name):
    path = RESULTS / name
    return json.loads(path.read_text())["rows"] if path.exists() else []


def main():
    ours, theirs = {}, {}
    for row in load("reliability.json"):
        total = ours.setdefault(number(row["row"]), [0, 0])
        total[0] += row["cases"]
        total[1] += row["failures"]
    for row in load("reliability_peer.json"):
        total = theirs.setdefault(number(row["row"]), [0, 0])
        total[0] += row["cases"]
        total[1] += row["cases"] - row["survived"]
    print("| fault | cases | failures | transformers 5.23: failures of cases |")
    print("|---|---|---|---|")
    for name, what in WHAT.items():
        if name not in ours:
            continue
        cases, failures = ours[name]
        peer = "{1} of {0}".format(*theirs[name]) if name in theirs else ""
        print(f"| {name} {what} | {cases:,} | {failures} | {peer} |")


if __name__ == "__main__":
    main()
