#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains in terminals that users have and looks at what they show: a tmux pane of 40 columns that is
resized, the pseudo-terminal of a Colab cell, which has no size, a Jupyter cell, and `status` in 60
columns. Exit code 77: the program of a row is missing."""

import argparse
import fcntl
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

SKIPPED = 77
STEPS = 60
ROOT = pathlib.Path(__file__).resolve().parents[2]


def prepare(binary, folder):
    text = ROOT / "tests/fixtures/text/lighthouse.txt"
    subprocess.run([binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "300",
                    "--output", folder / "tokenizer", text], check=True, stderr=subprocess.DEVNULL)
    words = [binary, "train", "--output_dir", folder / "out", "--cache_dir", folder / "cache",
             "--model_type", "roberta", "--tokenizer_name", folder / "tokenizer",
             "--config_overrides",
             "num_hidden_layers=2,num_attention_heads=2,hidden_size=64,intermediate_size=128,"
             "max_position_embeddings=66,type_vocab_size=1",
             "--train_file", text, "--max_seq_length", "64", "--max_steps", STEPS,
             "--logging_steps", 30, "--save_strategy", "no"]
    return [str(word) for word in words]


def shown(text, columns=None):
    """The lines that a terminal shows: \\r overwrites, colours move nothing."""
    lines, column = [""], 0
    for char in re.sub(r"\x1b\[[0-9;]*m", "", text):
        if char == "\n":
            lines.append("")
            column = 0
        elif char == "\r":
            column = 0
        else:
            if columns and column == columns:
                lines.append("")
                column = 0
            line = lines[-1].ljust(column)
            lines[-1] = line[:column] + char + line[column + 1:]
            column += 1
    return [line.rstrip() for line in lines]


def check_lines(lines):
    """Both logged steps are there once, and no bar is left over."""
    steps = [line for line in lines if re.match(r"train +\d+/|train +\d+%", line)]
    logged = [line for line in steps if re.search(r"train (30|60)/60 \(\d+%\)", line)]
    assert len(logged) == 2, lines
    assert len(steps) == 2, steps
    assert any("finished 60 steps" in line for line in lines), lines


def check_tmux(command, folder):
    if not shutil.which("tmux"):
        return SKIPPED
    tmux = ["tmux", "-L", f"finetune-{os.getpid()}", "-f", "/dev/null"]
    end = folder / "end"
    line = f"{shlex.join(command)}; echo $? > {shlex.quote(str(end))}; sleep 60"
    subprocess.run([*tmux, "new-session", "-d", "-x", "40", "-y", "50", line], check=True,
                   env={**os.environ, "TERM": "xterm"})
    bars, columns = set(), 40
    try:
        limit = time.monotonic() + 300
        while not end.exists():
            assert time.monotonic() < limit, "the run takes too long"
            if columns == 40 and bars:
                columns = 100
                subprocess.run([*tmux, "set-option", "-g", "window-size", "manual"], check=True)
                subprocess.run([*tmux, "resize-window", "-x", "100", "-y", "50"], check=True)
            pane = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True,
                                  text=True).stdout.splitlines()
            bar = [line for line in pane if re.match(r"train +\d+%", line)]
            assert len(bar) <= 1 or columns == 100, pane
            bars.update(bar)
            time.sleep(0.02)
        # Joined where a logged line is longer than the pane.
        pane = subprocess.run([*tmux, "capture-pane", "-p", "-J", "-S", "-"], check=True,
                              capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    assert end.read_text().strip() == "0", pane
    assert bars and min(len(bar) for bar in bars) < 40, bars
    assert any("finished 60 steps" in line for line in pane.splitlines()), pane
    return 0


def check_colab(command, _):
    """google.colab's `!command`: a pseudo-terminal for all streams whose size was never set."""
    terminal, side = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "TERM")}
    environment["TERM"] = "xterm-color"
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=side, stderr=side,
                               env=environment, start_new_session=True)
    os.close(side)
    text = b""
    while select.select([terminal], [], [], 300)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        text += part
    assert process.wait() == 0, text
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.decode())
    bars = [part for part in re.split("[\r\n]", text) if re.match(r"train +\d+% \|", part)]
    assert bars and max(len(bar.rstrip()) for bar in bars) < 80, bars
    check_lines(shown(text))
    return 0


def check_status(command, folder):
    """`status` in a terminal of 60 columns breaks lines between words."""
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    status = [command[0], "status", str(folder / "out")]
    plain = subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert max(map(len, plain.splitlines())) > 60, plain  # else it shows nothing
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 60, 0, 0))
    process = subprocess.Popen(status, stdin=subprocess.DEVNULL, stdout=side, stderr=side)
    process.wait()
    text = os.read(terminal, 65536).decode().replace("\r\n", "\n")
    os.close(side)
    # A word that is longer than the line stays whole.
    long = [line for line in text.splitlines() if len(line) > 60 and " " in line[15:].strip()]
    assert not long, text
    assert text.split() == plain.split(), text
    return 0


def check_jupyter(command, folder):
    try:
        import ipykernel  # noqa: F401
        import nbclient
        import nbformat
    except ImportError:
        return SKIPPED
    os.environ["JUPYTER_DATA_DIR"] = str(folder / "jupyter")
    os.environ["IPYTHONDIR"] = str(folder / "ipython")
    book = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell("!" + shlex.join(command)),
        nbformat.v4.new_code_cell("_exit_code"),
    ])
    subprocess.run([sys.executable, "-m", "ipykernel", "install", "--prefix", folder, "--name",
                    "finetune"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ["JUPYTER_PATH"] = str(folder / "share/jupyter")
    nbclient.NotebookClient(book, timeout=300, kernel_name="finetune").execute()
    text = "".join(output.text for output in book.cells[0].outputs if output.output_type == "stream")
    assert book.cells[1].outputs[0].data["text/plain"] == "0", text
    assert "\rtrain" in re.sub(r"\x1b\[[0-9;]*m", "", text), text
    check_lines(shown(text))
    return 0


ROWS = {"tmux": check_tmux, "colab": check_colab, "status": check_status, "jupyter": check_jupyter}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--row", required=True, choices=ROWS)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        return ROWS[arguments.row](prepare(arguments.binary, folder), folder)


if __name__ == "__main__":
    sys.exit(main())
