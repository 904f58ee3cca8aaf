#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records docs/resume.svg: a training is killed with SIGKILL, and the same command resumes it.

Runs configs/quickstart.yaml in a temporary folder, once without interruption and once killed inside, prints
what a terminal would show, and compares the two models. Lines are shortened, never changed.
"""

import argparse
import html
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = "1500"
KILL_AT = 700
WIDTH = 88  # characters of a line; the site shows the picture 688 pixels wide, with letters of 12
STYLE = """
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #24292f; white-space: pre; }
  .box { fill: #f6f8fa; stroke: #d0d7de; }
  .command { fill: #0550ae; font-weight: 600; }
  .killed { fill: #cf222e; font-weight: 600; }
  .good { fill: #116329; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .box { fill: #161b22; stroke: #30363d; }
    .command { fill: #79c0ff; }
    .killed { fill: #ff7b72; }
    .good { fill: #7ee787; }
  }
"""


def train(binary, folder, output, kill_at=None):
    """Lines that a session writes; killed when it has printed a step of at least `kill_at`."""
    command = [binary, "train", "configs/quickstart.yaml", "--max_steps", STEPS, "--output_dir", output,
               "--logging_steps", "100", "--save_steps", "250"]  # fmt: skip
    env = dict(os.environ, OMP_NUM_THREADS="1")
    process = subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip())
        step = re.match(r"train (\d+)/", line)
        if kill_at and step and int(step[1]) >= kill_at:
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.close()
    code = process.wait()
    if code != (-signal.SIGKILL if kill_at else 0):
        raise SystemExit(f"exit code {code}:\n" + "\n".join(lines))
    return lines


def shown(lines, every):
    """The lines worth showing: what was found, and every n-th of the progress lines."""
    progress = [l for l in lines if l.startswith("train ")]
    kept = set(progress[every - 1 :: every]) | set(progress[-1:])
    wanted = ("training ", "resuming ", "finished ")
    return [l for l in lines if l in kept or (l.startswith(wanted) and not l.startswith("training data"))]


def record(binary):
    with tempfile.TemporaryDirectory(prefix="finetune-record-") as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "configs", folder / "configs")
        (folder / "tests").symlink_to(ROOT / "tests")
        subprocess.run([binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "1000",
                        "--output", "runs/quickstart/tokenizer", "tests/fixtures/text/lighthouse.txt"],
                       cwd=folder, check=True, stderr=subprocess.DEVNULL)  # fmt: skip
        train(binary, folder, "whole")
        first = train(binary, folder, "run", KILL_AT)
        second = train(binary, folder, "run")
        same = (folder / "whole/model.safetensors").read_bytes() == (folder / "run/model.safetensors").read_bytes()
        if not same:
            raise SystemExit("the resumed model differs from the uninterrupted one")
    rows = [("command", "$ finetune train run.yaml")]
    rows += [("", l) for l in shown(first, 3)]
    rows += [("killed", "Killed"), ("command", "$ finetune train run.yaml")]
    rows += [("", l) for l in shown(second, 4)]
    rows += [("command", "$ cmp run/model.safetensors uninterrupted/model.safetensors && echo the same bits"),
             ("good", "the same bits")]  # fmt: skip
    return rows


def spans(text):
    """The text with what a terminal shows in green as spans."""
    parts = re.split(r"\x1b\[32m(.*?)\x1b\[0m", html.escape(text))
    return "".join(f'<tspan class="good">{part}</tspan>' if i % 2 else part for i, part in enumerate(parts))


def svg(rows, label, columns=None):
    """A picture of rows (class, text). `columns`: of a picture with its own size, whose rows fit."""
    wide, height = (columns or WIDTH) * 8 + 32, 20 * len(rows) + 28
    size = f' width="{wide}" height="{height}"' if columns else ""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg"{size} viewBox="0 0 {wide} {height}" role="img" '
           f'aria-label="{label}">',
           f"<style>{STYLE}</style>",
           f'<rect class="box" x="0.5" y="0.5" width="{wide - 1}" height="{height - 1}" rx="8"/>']  # fmt: skip
    for i, (kind, text) in enumerate(rows):
        text = text if columns or len(text) <= WIDTH else text[: WIDTH - 1].rpartition(" ")[0] + " …"
        kind = f' class="{kind}"' if kind else ""
        out.append(f'<text{kind} x="16" y="{30 + 20 * i}" xml:space="preserve">{spans(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "resume.svg")
    args = parser.parse_args()
    label = "A training run is killed; the same command resumes it and ends in the same bits"
    args.output.write_text(svg(record(args.binary.resolve()), label), encoding="utf-8")


if __name__ == "__main__":
    main()
