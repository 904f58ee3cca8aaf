#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records docs/tasks/chat-sample.svg: what `finetune train configs/sft.yaml --dry_run` shows of a sample in a terminal."""

import argparse
import os
import pty
import subprocess
import tempfile
import textwrap
from pathlib import Path

from record_resume import ROOT, svg

COLUMNS = 52  # of the picture: on a phone of 390 pixels its letters are 10 pixels high
ARGUMENTS = ["train", "configs/sft.yaml", "--dry_run"]


def terminal_lines(binary):
    """What the command writes to a terminal."""
    with tempfile.TemporaryDirectory(prefix="finetune-record-") as folder:
        outer, inner = pty.openpty()
        process = subprocess.Popen([binary, *ARGUMENTS, "--output_dir", f"{folder}/run", "--cache_dir", f"{folder}/cache"],
                                   cwd=ROOT, stdin=subprocess.DEVNULL, stdout=inner, stderr=inner)  # fmt: skip
        os.close(inner)
        text = b""
        while True:
            try:
                piece = os.read(outer, 1 << 16)
            except OSError:  # Linux: the process has closed the terminal
                break
            if not piece:
                break
            text += piece
        os.close(outer)
        if process.wait() != 0:
            raise SystemExit(text.decode())
    return text.decode().replace("\r", "").splitlines()


def record(binary):
    lines = terminal_lines(binary)
    data = [line for line in lines if line.startswith("training data:")]
    first = next(i for i, line in enumerate(lines) if line.startswith("sample 0"))
    last = next(i for i, line in enumerate(lines) if line.startswith("sample 2"))
    shown = [line for line in lines[first:last] if line != "  | "]
    data = [part for line in data for part in textwrap.wrap(line, COLUMNS, subsequent_indent="  ")]
    return [("command", "$ finetune " + " ".join(ARGUMENTS)), *(("", line) for line in data + shown)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "tasks" / "chat-sample.svg")
    args = parser.parse_args()
    label = "Samples before training starts; what is learned is coloured"
    args.output.write_text(svg(record(args.binary.resolve()), label, COLUMNS), encoding="utf-8")


if __name__ == "__main__":
    main()
