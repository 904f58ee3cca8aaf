#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Power cuts of real file systems: resumes from possible contents of the disk at moments of a run.

A run trains once on a logged disk (logged_disk.py) with ext4, xfs or btrfs. Half of the runs have two
sessions, the first of which is stopped or killed. For each cut, the disk's state at one moment of
the log is written to an image: everything up to the last flush and, of the blocks written later,
all (a clone of the disk at one moment), none or a random subset. The image is mounted at the same
path, where the kernel recovers its journal, and the same command runs. It must not resume from a
step before the newest durable checkpoint (renamed to its final name, and the output folder's fsync
had returned), must end with the bits of the undisturbed run and leave only valid checkpoints. After
a cut that follows the run's exit, the run must be finished.

Needs root, FUSE and loop devices; --probe reports whether they exist (exit 0) or what is missing.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import logged_disk
import soaked_run

BUILD = soaked_run.ROOT / "build"
NAMES = ["sync", "async", "async_limit_2", "best_limit_1", "best_limit_2", "mirror_limit_1",
         "mirror_limit_3", "fp16_adamw_8bit", "adafactor_epochs", "accumulation_save_minutes",
         "plateau_early_stopping", "two_zero_mirror"]  # fmt: skip


class Recording:
    """One run on a logged disk, in one or two sessions: its log, and when checkpoints became durable."""

    def __init__(self, options, folder, run, system, words, chance):
        self.blocks = system.formatted(folder)
        self.options, self.words, self.run = options, words, run
        self.commits_path = folder / "commits"
        self.commits_path.unlink(missing_ok=True)
        disk = logged_disk.LoggedDisk(folder / "disk", self.blocks, system.size)
        try:
            system.mount(disk.device.path, run.folder)
            try:
                self.begun = time.monotonic()
                self.interrupt(chance)
                self.session(0)
                self.ended = time.monotonic()
            finally:
                system.unmount(run.folder)
        finally:
            self.log = disk.close()
        self.commits = self.durable_checkpoints()

    def interrupt(self, chance):
        """In every other run, stops or kills a first session."""
        way = chance.choice(["", "", "stopped", "killed"])
        if way == "stopped":
            self.session(75, more=["--stop_at_step", str(chance.randint(2, 10))])
        elif way == "killed":
            self.session(-signal.SIGKILL, kill_after=chance.random())

    def session(self, code, more=(), kill_after=None):
        process = subprocess.Popen(
            [str(self.options.binary), *self.words, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "LD_PRELOAD": str(self.options.shim),
                "FINETUNE_FAULT_COMMITS": str(self.commits_path),
            },
        )
        try:
            said = process.communicate(timeout=kill_after or soaked_run.HANG_SECONDS)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
        if process.returncode not in (code, 0):
            sys.exit(f"{self.run.name} ended with {process.returncode}: {said}")

    def durable_checkpoints(self):
        """Returns [(moment, step)] of output_dir."""
        found = []
        for line in self.commits_path.read_text().splitlines():
            path, moment = line.rsplit(" ", 1)
            if Path(path).parent == self.run.out:
                found.append((float(moment), int(path.rsplit("-", 1)[1])))
        if not found:
            sys.exit(f"{self.run.name}: no checkpoint was seen to become durable")
        return found


class PowerCuts:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.chance = random.Random(f"power cuts {options.seed}")
        self.target = folder / "root"
        self.target.mkdir()
        self.server = soaked_run.SessionServer(options.server, options.binary, folder / "server")
        self.expected = {}
        self.tallies = {}

    def run_of(self, name):
        """Returns the run in the file system's root; some configurations have their cache on the same
        disk."""
        on_disk = name in ("async_limit_2", "mirror_limit_3")
        cache = self.target / "cache" if on_disk else self.folder / "cache"
        run = soaked_run.SoakedRun(name, self.target, cache_dir=str(cache))
        return run, run.words(self.folder / f"{name}.json")

    def undisturbed(self, name):
        if name not in self.expected:
            run, words = self.run_of(name)
            session = self.server.run(words, is_fork=False)
            if session.code != 0:
                sys.exit(f"{name} ended with {session.code}: {session.said()}")
            self.expected[name] = run.outcome()
            for path in list(self.target.iterdir()):
                shutil.rmtree(path)
        return self.expected[name]

    def positions(self, recording, cuts, count):
        """Returns sorted positions: most during the run, some at its end and after it."""
        first, last = cuts.index_at(recording.begun), cuts.index_at(recording.ended)
        end = len(recording.log)
        after = max(1, count // 8)
        chosen = [self.chance.randint(first, last) for _ in range(count - after)]
        return sorted(chosen + [self.chance.randint(last, end) for _ in range(after)])

    def record(self, name, system, count):
        """Records one run and tests `count` cuts."""
        run, words = self.run_of(name)
        expected = self.undisturbed(name)
        tally = self.tallies.setdefault(
            system.name, soaked_run.Tally(f"R4.disks {system.name}", self.options)
        )
        started = time.monotonic()
        recording = Recording(self.options, self.folder, run, system, words, self.chance)
        cuts = logged_disk.Cuts(recording.blocks, recording.log)
        for position in self.positions(recording, cuts, count):
            cuts.advance(position)
            kept = self.chance.choice([1, 1, 0, 0.2, 0.5, 0.9])
            blocks = cuts.state(self.chance, kept)
            is_fork = self.chance.random() >= self.options.starts
            durable = max((step for moment, step in recording.commits
                           if position >= cuts.index_at(moment)), default=0)  # fmt: skip
            is_finished = position >= cuts.index_at(recording.ended)
            what = (f"{name}, cut at {position} of {len(recording.log)}, {kept} of the cache kept, "
                    f"step {durable} durable, seed {self.options.seed}")  # fmt: skip
            problem = self.resume(run, words, system, blocks, durable, is_finished, expected, is_fork)
            if problem and self.options.keep:
                name_of_image = f"{system.name}-{name}-{position}-{time.monotonic_ns()}"
                logged_disk.write_image(self.options.keep / name_of_image, blocks, system.size)
                what += f", image {self.options.keep / name_of_image}"
            tally.add(what, problem)
        tally.seconds += time.monotonic() - started
        tally.save()

    def resume(self, run, words, system, blocks, durable, is_finished, expected, is_fork):
        """Returns the problem after one cut, or an empty string."""
        image = self.folder / "cut"
        logged_disk.write_image(image, blocks, system.size)
        device = logged_disk.LoopDevice(image)
        try:
            system.mount(device.path, self.target)
            try:
                return self.judge(run, words, durable, is_finished, expected, is_fork)
            finally:
                system.unmount(self.target)
        except logged_disk.Unable as error:
            return str(error)  # the kernel must recover every state that a disk may have
        finally:
            device.close()

    def judge(self, run, words, durable, is_finished, expected, is_fork):
        session = self.server.run(words, is_fork)
        said = session.said()
        if session.code != 0:
            return f"the next start ended with {session.code}: {said}"
        found_finished = session.found_finished()
        if is_finished and not found_finished:
            return f"the run had ended with 0, the next start trained again: {said}"
        if not found_finished and (session.resumed() or 0) < durable:
            return f"step {durable} was durable, the start resumed from {session.resumed()}: {said}"
        if run.left_over():
            return f"left over: {run.left_over()}; {said}"
        try:
            problem = soaked_run.difference(run.outcome(), expected)
        except (OSError, ValueError, KeyError) as error:
            problem = str(error)
        if problem:
            return f"{problem}; {said}"
        return run.invalid(self.server)

    def close(self):
        self.server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    soaked_run.add_options(parser)
    parser.add_argument("--shim", type=Path, help="the preloaded library of shim.c",
                        default=BUILD / "tests" / "libfinetune_fault_shim.so")  # fmt: skip
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--cuts_of_a_run", type=int, default=20)
    parser.add_argument("--systems", default="", help="file systems, separated by spaces")
    parser.add_argument("--starts", type=float, default=0.1,
                        help="share of resumes by the release binary, the rest in forks")  # fmt: skip
    parser.add_argument("--probe", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends mounts and processes
    if not options.probe and not options.shim.exists():
        sys.exit(f"there is no {options.shim}")
    folder = soaked_run.temporary_folder(logged_disk.FOLDER_PREFIX)
    try:
        logged_disk.probe(folder)
        return 0 if options.probe else cut(options, folder)
    except logged_disk.Unable as error:
        print(f"power cuts of real file systems cannot be tried here: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cut(options, folder):
    systems = [s for s in logged_disk.FILE_SYSTEMS
               if not options.systems or s.name in options.systems.split()]  # fmt: skip
    for system in systems:
        if system.missing():
            print(f"{system.name} is left out: {system.missing()}")
    systems = [system for system in systems if not system.missing()]
    if not systems:
        sys.exit("no file system is left")
    names = soaked_run.chosen(NAMES, options.only)
    options.keep = options.keep or Path(tempfile.mkdtemp(prefix="finetune-failed-cuts-"))
    end = time.monotonic() + options.minutes * 60
    all_cuts = PowerCuts(options, folder)
    pairs = [(name, system) for name in names for system in systems]
    all_cuts.chance.shuffle(pairs)
    left = options.cuts
    while left > 0 and time.monotonic() < end:
        name, system = pairs.pop(0)
        pairs.append((name, system))
        count = min(left, options.cuts_of_a_run)
        all_cuts.record(name, system, count)
        left -= count
    all_cuts.close()
    return soaked_run.report(all_cuts.tallies.values(), options)


if __name__ == "__main__":
    sys.exit(main())
