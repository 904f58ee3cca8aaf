#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 at random times in many configurations (soaked_run.py).

They have several processes, ZeRO, mirrors, mixed precision, 8-bit optimizers, best models or early stopping.

A run is killed up to 11 times and then finishes. The test kills the whole session, only its first
process, one of its children, or the session some milliseconds after SIGTERM. After a kill, every
checkpoint that was visible must still exist unless there is a newer one, and the next start must not
resume from an earlier one. At the end, weights, the last checkpoint's state files, log, results and
best metric equal those of the undisturbed run, every remaining checkpoint is valid and there are no
leftovers. Each kill counts as a case.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import soaked_run

MOST_KILLS_OF_A_RUN = 11
ENGINES = ("starts", "forks")  # the release binary, and forks of the warm server


class KilledRun:
    """One configuration that is killed repeatedly."""

    def __init__(self, name, engine, options, folder, server):
        self.options, self.server = options, server
        self.is_fork = engine == "forks"
        self.run = soaked_run.SoakedRun(name, folder / name, cache_dir=str(folder / "cache"))
        self.run.folder.mkdir(exist_ok=True)
        self.words = self.run.words(folder / f"{name}.json")
        self.tally = soaked_run.Tally(f"R2.{engine} {name}", options)
        self.chance = random.Random(f"kills {options.seed} {engine} {name}")
        self.expected, self.session_seconds = None, 0.0

    def prepare(self):
        """Trains the undisturbed run with the release binary and measures the seconds of a session."""
        for is_fork in (False, self.is_fork):
            self.run.begin_again()
            started = time.monotonic()
            session = self.server.run(self.words, is_fork)
            self.session_seconds = time.monotonic() - started
            if session.code != 0:
                sys.exit(f"{self.run.name} ended with {session.code}: {session.said()}")
            ended = self.run.outcome()
            self.expected = self.expected or ended
            problem = soaked_run.difference(ended, self.expected)
            if problem:
                sys.exit(f"{self.run.name}, twice without a kill: {problem}")

    def next_run(self):
        """Runs from start to end. The result of the end belongs to the last kill."""
        started = time.monotonic()
        if self.expected is None:
            self.prepare()
        self.run.begin_again()
        newest, last = 0, None  # newest checkpoint seen, last kill
        for _ in range(self.chance.randint(1, MOST_KILLS_OF_A_RUN)):
            what, problem, newest = self.session(newest)
            if what is None and not problem:
                break  # it finished before the kill
            if last:
                self.tally.add(last, "")
            last = what or "a session that was not killed"
            if problem:
                self.fail(last, problem)
                last = None
                break
        if last:
            problem = self.finish(newest)
            if problem:
                self.fail(last, problem)
            else:
                self.tally.add(last, "")
        self.tally.seconds += time.monotonic() - started
        self.tally.save()

    def fail(self, what, problem):
        kept = self.options.keep / f"{self.run.name}-{time.monotonic_ns()}"
        shutil.copytree(self.run.folder, kept, symlinks=True)
        self.tally.add(f"{what}, seed {self.options.seed}, kept in {kept}", problem)

    def session(self, newest):
        """Runs a session that is killed at a random time. Returns what was killed (None: it finished
        first), the problem, and the newest visible checkpoint."""
        way = self.chance.choice(["session", "session", "first", "child", "after SIGTERM"])
        # Fraction of the run that is left; startup and end are about a third of a session.
        left = 1 - 0.65 * newest / self.expected["step"]
        moment = self.chance.random() * 1.1 * left * self.session_seconds
        pause = self.chance.random() * 0.05
        session = self.server.start(self.words, self.is_fork)
        is_killed = not session.is_over(moment)
        if is_killed:
            if way == "session":
                session.kill_all()
            elif way == "after SIGTERM":
                session.kill_first(signal.SIGTERM)
                session.is_over(pause)
                session.kill_all()
            else:
                children = session.children() if way == "child" else []
                # Without children only the first process can be killed.
                session.kill_one(self.chance.choice(children) if children else session.process)
        code = session.wait()
        what = f"{way} killed after {moment:.3f} of {self.session_seconds:.3f} s"
        problem = ""
        if code == "hangs":
            problem = f"a process was left after {soaked_run.HANG_SECONDS} s"
        elif code == -signal.SIGTERM and way == "after SIGTERM" and not session.said():
            pass  # it came during the dynamic loader, before any of our code
        elif code not in (0, 75, -9, 137):
            problem = f"ended with {code}"
        elif not is_killed and code != 0:
            problem = f"ended with {code} without a kill"
        problem = problem or self.check_start(session, newest)
        found = self.run.committed()
        if not problem and found < newest:
            problem = f"step {newest} is gone, {found or 'no checkpoint'} is the newest"
        if problem:
            problem += f": {session.said()}"
        return what if is_killed else None, problem, max(newest, found)

    @staticmethod
    def check_start(session, newest):
        resumed = session.resumed()
        if resumed is None or session.found_finished() or resumed >= newest:
            return ""
        return f"step {newest} was in sight, the start resumed from {resumed}"

    def finish(self, newest):
        session = self.server.run(self.words, self.is_fork)
        said = session.said()
        if session.code != 0:
            return f"the last start ended with {session.code}: {said}"
        problem = self.check_start(session, newest)
        if not problem and self.run.left_over():
            problem = f"left over: {self.run.left_over()}"
        try:
            problem = problem or soaked_run.difference(self.run.outcome(), self.expected)
        except (OSError, ValueError, KeyError) as error:
            problem = str(error)
        return f"{problem}: {said}" if problem else self.run.invalid(self.server)


def kill(options, folder):
    server = soaked_run.SessionServer(options.server, options.binary, folder / "server")
    names = soaked_run.chosen(soaked_run.CONFIGURATIONS, options.only)
    options.keep = options.keep or Path(tempfile.mkdtemp(prefix="finetune-failed-kills-"))
    runs = [KilledRun(name, options.engine, options, folder, server) for name in names]
    end = time.monotonic() + options.minutes * 60
    # Each configuration gets the same time.
    while sum(run.tally.cases for run in runs) < options.kills and time.monotonic() < end:
        min(runs, key=lambda run: run.tally.seconds).next_run()
    server.close()
    return soaked_run.report([run.tally for run in runs if run.tally.cases], options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    soaked_run.add_options(parser)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--engine", choices=ENGINES, default="starts")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends mounts and processes
    folder = soaked_run.temporary_folder("finetune-kills-")
    try:
        return kill(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
