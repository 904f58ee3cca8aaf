#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times of tests: what a run took, and what changed between two runs.

scripts/test_times.py --collect BUILD_DIR   prints the table of the last run and writes BUILD_DIR/Testing/times.json
scripts/test_times.py OLD NEW               compares two such files: entries that changed by more than a third
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

CHANGE = 4 / 3
NOISE_S = 2.0  # entries below this are never listed
ORDER = ["fast", "torch", "slow", "accelerator", "gpu", "long"]


def labels_of(build):
    """Returns the labels of each test."""
    shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    labels = {}
    for test in json.loads(shown.stdout)["tests"]:
        properties = {item["name"]: item["value"] for item in test.get("properties", [])}
        labels[test["name"]] = properties.get("LABELS", [])
    return labels


def collect(build):
    """Reads the lines of tests/support/timed.cpp; a test that ran twice counts with its last line."""
    labels = labels_of(build)
    tests = {}
    for line in (build / "Testing" / "times.txt").read_text().splitlines():
        name, wall, cpu, code = line.rsplit(" ", 3)
        tests[name] = {
            "wall_s": float(wall),
            "cpu_s": float(cpu),
            "code": int(code),
            "labels": labels.get(name, []),
        }
    return {
        "date": datetime.date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[2], 2),
        "tests": dict(sorted(tests.items())),
    }


def label_of(test):
    return "long" if "long" in test["labels"] else next((name for name in ORDER if name in test["labels"]), "other")


def table(run):
    tests = run["tests"]
    lines = [f"{'label':<14}{'tests':>6}{'wall s':>10}{'CPU s':>10}"]
    groups = {}
    for test in tests.values():
        groups.setdefault(label_of(test), []).append(test)
    groups = dict(sorted(groups.items(), key=lambda item: ORDER.index(item[0]) if item[0] in ORDER else len(ORDER)))
    groups["all"] = list(tests.values())
    for name, group in groups.items():
        wall = sum(test["wall_s"] for test in group)
        cpu = sum(test["cpu_s"] for test in group)
        lines.append(f"{name:<14}{len(group):>6}{wall:>10.1f}{cpu:>10.1f}")
    lines.append("the slowest:")
    slowest = sorted(tests.items(), key=lambda item: -item[1]["wall_s"])[:10]
    lines += [f"  {test['wall_s']:>8.1f} s {test['cpu_s']:>8.1f} CPU s  {name}" for name, test in slowest]
    return "\n".join(lines)


def compare(old, new):
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            word = "new" if name in new else "gone"
            lines.append(f"{name}: {word}, {(new.get(name) or old.get(name))['cpu_s']:.1f} CPU s")
            continue
        for key, unit in (("cpu_s", "CPU s"), ("wall_s", "s")):
            before, after = old[name][key], new[name][key]
            low, high = sorted((before, after))
            if high < NOISE_S or high <= CHANGE * low:
                continue
            lines.append(f"{name}: {before:.1f} -> {after:.1f} {unit}")
            break
    total = [sum(test["cpu_s"] for test in tests.values()) for tests in (old, new)]
    lines.append(f"all: {total[0]:.1f} -> {total[1]:.1f} CPU s in {len(old)} -> {len(new)} tests")
    return "\n".join(lines)


def read(path):
    try:
        return json.loads(Path(path).read_text())["tests"]
    except (OSError, ValueError, KeyError) as problem:
        sys.exit(f"error: {path}: no times of tests ({problem}); name a times.json that scripts/test wrote")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", metavar="BUILD_DIR", type=Path)
    parser.add_argument("files", nargs="*", metavar="OLD NEW")
    arguments = parser.parse_args()
    if arguments.collect and not arguments.files:
        run = collect(arguments.collect)
        (arguments.collect / "Testing" / "times.json").write_text(json.dumps(run, indent=1) + "\n")
        print(table(run))
    elif not arguments.collect and len(arguments.files) == 2:
        print(compare(*(read(path) for path in arguments.files)))
    else:
        parser.error("--collect BUILD_DIR, or two files")


if __name__ == "__main__":
    main()
