#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the fuzz targets in turn, in slices, until each has used its time.

  run_fuzzers.py --build build-fuzz --corpora DIR --seconds 3600 --jobs 4 --results DIR

The time is processor time of the fuzzer, so a busy machine does not matter. Time of earlier runs, as
recorded in the results file, counts. Corpora are stored in DIR/TARGET and failing inputs in
DIR/TARGET.failures, so the next run continues where this one stopped. Exit code 1 if an input failed:
a sanitizer's report, a crash, more than 5 s or 2 GiB.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SLICE_SECONDS = 300
TIMEOUT_SECONDS = 5  # for an input; the fuzzer measures it by the clock
TIMED_OUT = 70  # libFuzzer's exit code


def targets():
    return sorted(path.stem for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cpp"))


def row_of(target):
    return f"R19 {target.removesuffix('_fuzz')}"


class Fuzzing:
    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.minutes * 60
        self.lock = threading.Lock()
        rows = json.loads(options.known.read_text())["rows"] if options.known.exists() else []
        self.names = [name for name in targets() if re.search(options.only, name)]
        self.had = {name: sum(row["seconds"] for row in rows if row["row"] == row_of(name))
                    for name in self.names}  # fmt: skip
        self.results = {}
        self.slices = itertools.count()  # each with another seed
        self.busy = set()
        self.failed = set()

    def next_target(self):
        """Returns the target with the least time so far; None if all have used theirs."""
        with self.lock:
            waiting = [name for name in self.names if name not in self.busy | self.failed
                       and self.had[name] < self.options.seconds]  # fmt: skip
            if not waiting or time.monotonic() >= self.end:
                return None
            name = min(waiting, key=lambda name: self.had[name])
            self.busy.add(name)
            return name

    def work(self):
        while (name := self.next_target()) is not None:
            try:
                self.fuzz(name)
            finally:
                with self.lock:
                    self.busy.discard(name)

    def fuzz(self, name):
        corpus = self.options.corpora / name
        failures = self.options.corpora / f"{name}.failures"
        corpus.mkdir(parents=True, exist_ok=True)
        failures.mkdir(exist_ok=True)
        left = self.options.seconds - self.had[name]
        wall = min(self.options.slice, max(1, left), max(1, self.end - time.monotonic()))
        with open(self.options.corpora / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                [
                    self.options.build / name,
                    f"-seed={self.options.seed * 1000 + next(self.slices)}",
                    f"-max_total_time={wall:.0f}",
                    "-rss_limit_mb=2048",
                    f"-timeout={TIMEOUT_SECONDS}",
                    "-print_final_stats=1",
                    f"-artifact_prefix={failures}/",
                    corpus,
                    ROOT / "tests" / "fixtures" / "fuzz" / name.removesuffix("_fuzz"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        code = process.returncode
        if code == TIMED_OUT and self.are_fast(name, failures):
            code = 0
        said = (self.options.corpora / f"{name}.log").read_text(errors="replace")
        runs = re.search(r"stat::number_of_executed_units: *(\d+)", said)
        self.note(name, int(runs[1]) if runs else 0, code,
                  usage.ru_utime + usage.ru_stime)  # fmt: skip

    def are_fast(self, name, failures):
        """Whether the inputs that timed out need less than the limit of processor time; removes these."""
        slow = 0
        for path in failures.glob("timeout-*"):
            process = subprocess.Popen([self.options.build / name, "-timeout=300", path],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if status == 0 and usage.ru_utime + usage.ru_stime < TIMEOUT_SECONDS:
                path.unlink()
            else:
                slow += 1
        return slow == 0

    def note(self, name, runs, code, seconds):
        with self.lock:
            self.had[name] += seconds
            result = self.results.setdefault(name, {
                "row": row_of(name), "cases": 0, "failures": 0, "seed": self.options.seed,
                "seconds": 0.0, "commit": self.options.commit,
            })  # fmt: skip
            result["cases"] += runs
            result["seconds"] = round(result["seconds"] + seconds, 1)
            result["date"] = time.strftime("%Y-%m-%d", time.gmtime())
            print(f"{row_of(name)}: {runs} runs, {seconds:.0f} s, {self.had[name]:.0f} s in all",
                  flush=True)  # fmt: skip
            if code != 0:
                self.failed.add(name)
                result["failures"] += 1
                print(f"{row_of(name)} FAILED ({code}); the input is in "
                      f"{self.options.corpora / (name + '.failures')}", flush=True)  # fmt: skip
            if self.options.results:
                path = self.options.results / f"{name}.json"
                staging = path.with_suffix(".tmp")
                staging.write_text(json.dumps(result) + "\n")
                staging.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build-fuzz")
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600, help="of each target, in all")
    parser.add_argument("--slice", type=float, default=SLICE_SECONDS)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after M minutes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", default="")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--only", default="", help="regular expression of targets")
    parser.add_argument("--known", type=Path, help="results that count as time already spent",
                        default=ROOT / "scripts" / "bench" / "results" / "reliability.json")  # fmt: skip
    fuzzing = Fuzzing(parser.parse_args())
    missing = [name for name in fuzzing.names if not (fuzzing.options.build / name).exists()]
    if missing:
        sys.exit(f"{fuzzing.options.build} lacks {', '.join(missing)}; scripts/soak --fuzz builds it")
    with concurrent.futures.ThreadPoolExecutor(fuzzing.options.jobs) as pool:
        for worker in [pool.submit(fuzzing.work) for _ in range(fuzzing.options.jobs)]:
            worker.result()
    return 1 if fuzzing.failed else 0


if __name__ == "__main__":
    sys.exit(main())
