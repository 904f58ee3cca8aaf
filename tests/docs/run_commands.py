#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every command in the documentation as a reader would type it.

A page is read from top to bottom in an empty folder:
- a fence with title="NAME" is written to the file NAME;
- each line of a `bash` fence is a command; "\\" at its end continues it. It must exit with 0, or with
  the codes of `<!-- exits with N M -->` above the fence, one per command;
- a `text` fence shows output. Below `<!-- printed -->` each of its lines must occur in the output of
  the `bash` fence above it; "..." in a line is any text, other output is not compared;
- a fence below `<!-- not run: REASON -->` is skipped.

Marks are comments, which the site and GitHub do not show, so that a block can be copied and run.

    run_commands.py --binary build/finetune [PAGE...]     default: README.md and docs/**/*.md
    run_commands.py --part long                           the pages whose commands take minutes; short: the others
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^ *(```+)(.*)$")
EXITS = re.compile(r"<!-- exits with ([\d ]+) -->$")
PRINTED = "<!-- printed -->"
NOT_RUN = "<!-- not run: "
LONG = {ROOT / "README.md", *(ROOT / "docs" / name for name in ("quickstart.md", "tasks/mlm.md", "tasks/lora.md",
                                                                 "tasks/clm.md", "tasks/pretraining.md"))}  # fmt: skip
SHELLS = ("sh", "shell", "console", "shell-session")


def fences(page):
    """Yields (line number, info string, lines, the line above it) for each fence."""
    lines = page.read_text(encoding="utf-8").splitlines()
    mark = None
    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if mark is None and match:
            mark, info, start, body = match[1], match[2].strip(), number, []
            before = next((l for l in reversed(lines[: number - 1]) if l.strip()), "")
        elif mark is not None and line.strip() == mark:
            yield start, info, body, before.strip()
            mark = None
        elif mark is not None:
            body.append(line)
    if mark is not None:
        raise SystemExit(f"{page}:{start}: this fence has no end")


def commands(start, body):
    """Yields (line number, command) for each command of a bash fence."""
    at = 0
    while at < len(body):
        first, text = at, body[at]
        while text.endswith("\\"):
            at += 1
            text = text[:-1].rstrip() + " " + body[at].strip()
        if text.strip():
            yield start + 1 + first, text
        at += 1


def is_printed(line, output):
    """Whether a line of the output contains this one, in which "..." is any text."""
    pattern = ".*".join(re.escape(part.strip()) for part in line.split("..."))
    return re.search(pattern, output) is not None


class Reader:
    """Executes one page in a separate folder."""

    def __init__(self, page, binary, folder):
        self.page = page
        self.folder = folder
        bin_folder = folder / ".bin"
        bin_folder.mkdir()
        (bin_folder / "finetune").symlink_to(binary.resolve())
        self.env = dict(os.environ, OMP_NUM_THREADS="1", HOME=str(folder), LC_ALL="C.UTF-8")
        self.env["PATH"] = f"{bin_folder}:{self.env['PATH']}"
        self.runs = 0
        self.failures = []

    def fail(self, line, text):
        self.failures.append(f"{self.page.relative_to(ROOT)}:{line}: {text}")

    def follow(self):
        output = ""
        for start, info, body, mark in fences(self.page):
            language = info.split(" ")[0]
            title = re.search(r'title="([^"]+)"', info)
            if language in SHELLS or (language == "bash" and any(line.startswith("$ ") for line in body)):
                self.fail(start, "use a `bash` fence without prompts, so that it can be copied")
            elif mark.startswith(NOT_RUN):
                output = ""
            elif title:
                path = self.folder / title[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(body) + "\n", encoding="utf-8")
            elif language == "bash":
                output = self.run_fence(start, body, mark)
            elif mark == PRINTED:
                self.compare(start, body, output)

    def run_fence(self, start, body, mark):
        """Runs the commands of a fence, one by one, and returns what they print."""
        output = ""
        listed = list(commands(start, body))
        exits = EXITS.match(mark)
        codes = [int(code) for code in exits[1].split()] if exits else [0] * len(listed)
        if len(codes) != len(listed):
            self.fail(start, f"{len(codes)} exit codes are named for {len(listed)} commands")
            return output
        for (line, command), expected in zip(listed, codes):
            done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder, env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=300)  # fmt: skip
            text = done.stdout.decode("utf-8", "replace")
            output += text
            self.runs += 1
            if done.returncode != expected:
                tail = "\n    ".join(text.strip().splitlines()[-5:])
                self.fail(line, f"exit code {done.returncode} where {expected} was expected: {command}\n    {tail}")
        return output

    def compare(self, start, body, output):
        for line, text in enumerate(body, start + 1):
            if not is_printed(text, output):
                self.fail(line, f"the output does not contain: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--part", choices=("short", "long"))
    parser.add_argument("page", type=Path, nargs="*")
    args = parser.parse_args()
    pages = args.page or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if args.part:
        pages = [page for page in pages if (page.resolve() in LONG) == (args.part == "long")]
    failures, runs = [], 0
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="finetune-docs-") as folder:
            reader = Reader(page.resolve(), args.binary, Path(folder))
            reader.follow()
            failures += reader.failures
            runs += reader.runs
            print(f"{page}: {reader.runs} commands", file=sys.stderr)
    print(f"{runs} commands, {len(failures)} failures", file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures or (not args.page and runs < (20 if args.part == "long" else 40)) else 0


if __name__ == "__main__":
    sys.exit(main())
