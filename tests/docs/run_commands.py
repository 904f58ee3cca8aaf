#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every command in the documentation as a reader would type it.

A page is read from top to bottom in an empty folder:
- a fence with title="NAME" is written to the file NAME;
- in a `console` fence, a line that starts with "$ " is a command; "\\" at its end continues it. It must
  exit with 0, or with N if "# exits with N" ends the line. Other lines of the fence are output. They
  are not compared, except lines that end in "  # printed", which must occur in the output;
- a fence below `<!-- not run: REASON -->` is skipped.

    run_commands.py --binary build/finetune [PAGE...]     default: README.md and docs/**/*.md
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
EXITS = re.compile(r"\s+# exits with (\d+)$")
PRINTED = "  # printed"


def fences(page):
    """Yields (line number, info string, lines, whether it is run) for each fence."""
    lines = page.read_text(encoding="utf-8").splitlines()
    mark = None
    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if mark is None and match:
            mark, info, start, body = match[1], match[2].strip(), number, []
            before = next((l for l in reversed(lines[: number - 1]) if l.strip()), "")
        elif mark is not None and line.strip() == mark:
            yield start, info, body, not before.startswith("<!-- not run: ")
            mark = None
        elif mark is not None:
            body.append(line)
    if mark is not None:
        raise SystemExit(f"{page}:{start}: this fence has no end")


def commands(start, body):
    """Yields (line number, command, exit code) for each command of a console fence."""
    at = 0
    while at < len(body):
        if body[at].startswith("$ "):
            first, text = at, body[at][2:]
            while text.endswith("\\"):
                at += 1
                text = text[:-1].rstrip() + " " + body[at].strip()
            exits = EXITS.search(text)
            yield start + 1 + first, EXITS.sub("", text), int(exits[1]) if exits else 0
        at += 1


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
        for start, info, body, runs in fences(self.page):
            if not runs:
                continue
            title = re.search(r'title="([^"]+)"', info)
            if title:
                path = self.folder / title[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("\n".join(body) + "\n", encoding="utf-8")
            elif info.split(" ")[0] == "console":
                self.run_fence(start, body)
            elif info.split(" ")[0] in ("sh", "bash", "shell"):
                self.fail(start, "use a `console` fence, or say above it why it is not run")

    def run_fence(self, start, body):
        output = ""
        for line, command, expected in commands(start, body):
            done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=self.folder, env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=300)  # fmt: skip
            text = done.stdout.decode("utf-8", "replace")
            output += text
            self.runs += 1
            if done.returncode != expected:
                tail = "\n    ".join(text.strip().splitlines()[-5:])
                self.fail(line, f"exit code {done.returncode} where {expected} was expected: {command}\n    {tail}")
        for offset, text in enumerate(body, start + 1):
            if text.endswith(PRINTED) and text[: -len(PRINTED)] not in output:
                self.fail(offset, f"the output does not contain: {text[:-len(PRINTED)]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("page", type=Path, nargs="*")
    args = parser.parse_args()
    pages = args.page or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
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
    return 1 if failures or (not args.page and runs < 40) else 0


if __name__ == "__main__":
    sys.exit(main())
