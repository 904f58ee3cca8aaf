#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records docs/report*.png: pictures of `finetune report` of a real run in a real browser.

Who speaks? A small classifier learns it from a play (--text: blocks of "NAME:" and lines, as Tiny
Shakespeare), is interrupted five times, changes its learning rate, and copies itself to a mirror.
A second run with another learning rate is compared with it. --status prints the status on the way.
"""

import argparse
import collections
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "docs"))
import chromium  # noqa: E402

SPEAKERS = 5
STEPS = 1200


def speeches(text):
    """(speaker, speech) of every block."""
    for block in text.split("\n\n"):
        name, _, speech = block.partition(":\n")
        if speech and name.isupper():
            yield name, " ".join(speech.split())


def write_data(text, folder):
    """train.jsonl, valid.jsonl and test.jsonl of the speakers with the most speeches."""
    spoken = list(speeches(text))
    counts = collections.Counter(name for name, speech in spoken if len(speech) > 40)
    known = {name for name, _ in counts.most_common(SPEAKERS)}
    rows = [
        {"text": speech, "speaker": name.title()}
        for name, speech in spoken
        if name in known and len(speech) > 40
    ]
    random.Random(3).shuffle(rows)
    tenth = len(rows) // 10
    for name, part in (
        ("valid", rows[:tenth]),
        ("test", rows[tenth : 2 * tenth]),
        ("train", rows[2 * tenth :]),
    ):
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{name}.jsonl").write_text(lines)


def configure(folder, name, **keys):
    config = {
        "task": "sequence_classification",
        "model_type": "roberta",
        "tokenizer_name": "tokenizer",
        "config_overrides": {
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "hidden_size": 128,
            "intermediate_size": 256,
            "max_position_embeddings": 130,
            "type_vocab_size": 1,
            "hidden_dropout_prob": 0.2,
        },
        "train_file": "train.jsonl",
        "validation_file": "valid.jsonl",
        "test_file": "test.jsonl",
        "do_predict": True,
        "text_column": "text",
        "label_column": "speaker",
        "max_seq_length": 64,
        "max_steps": STEPS,
        "per_device_train_batch_size": 8,
        "learning_rate": 2.5e-4,
        "warmup_steps": 100,
        "lr_scheduler_type": "cosine",
        "logging_steps": 5,
        "eval_strategy": "steps",
        "eval_steps": 100,
        "save_steps": 75,
        "save_total_limit": 3,
        "hardware": "colab_t4",
        "report_to": "none",
        "cache_dir": "cache",
        "output_dir": name,
        **keys,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config, indent=1))
    return path


def status_of(binary, folder, name):
    done = subprocess.run([binary, "status", name], cwd=folder, text=True, capture_output=True)
    return done.stdout


def logged_step(line):
    """Of a line of --progress json; None for other lines."""
    if not line.startswith('{"event":"log"'):
        return None
    entry = json.loads(line)
    return entry["done"] if entry["phase"] == "train" else None


def interrupt(binary, folder, config, step, how, *more, shows_status):
    """Trains until `step` is logged, then sends the signal.

    The status shortly before takes seconds, in which the training continues beyond `step`.
    """
    command = [binary, "train", config, "--progress", "json", *more]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    was_shown = not shows_status
    for line in process.stderr:
        reached = logged_step(line)
        if reached is None:
            continue
        if reached >= step - 130 and not was_shown:
            was_shown = True
            time.sleep(3.2)  # the process writes where it is every three seconds
            print(status_of(binary, folder, Path(config).stem))
        if reached >= step:
            process.send_signal(how)
            break
    process.stderr.read()
    process.wait()
    print(status_of(binary, folder, Path(config).stem))


def finish(binary, folder, config, *more):
    done = subprocess.run(
        [binary, "train", config, *more], cwd=folder, capture_output=True, text=True
    )
    print(done.stderr)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}")


def picture(browser, page, path, width, height, dark=False):
    browser.resize(width, height, dark)
    browser.open(page.resolve().as_uri())
    browser.screenshot(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--text", required=True, help="a play: blocks of NAME: and lines")
    parser.add_argument("--output", type=Path, default=ROOT / "docs")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it")
    parser.add_argument("--status", action="store_true", help="print the status of running sessions")
    options = parser.parse_args()
    program = chromium.find()
    if program is None:
        sys.exit("no chromium on PATH; scripts/setup.sh installs it")
    binary = str(Path(options.binary).resolve())
    folder = options.keep or Path(tempfile.mkdtemp(prefix="record-report-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_data(Path(options.text).read_text(), folder)
    run = [binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", "2000"]
    subprocess.run([*run, "--output", folder / "tokenizer", options.text], check=True,
                   capture_output=True)  # fmt: skip
    config = configure(folder, "speakers", mirror_dir="mirror")
    slower = ("--learning_rate", "2e-4")
    for step, how, more in (
        (190, signal.SIGKILL, ()),
        (400, signal.SIGTERM, ()),
        (610, signal.SIGKILL, slower),
        (820, signal.SIGTERM, slower),
        (1030, signal.SIGKILL, slower),
    ):
        interrupt(binary, folder, config, step, how, *more, shows_status=options.status)
    finish(binary, folder, config, *slower)
    print(status_of(binary, folder, "speakers"))
    finish(binary, folder, configure(folder, "constant", lr_scheduler_type="constant"))
    subprocess.run([binary, "report", "speakers", "-o", "one.html"], cwd=folder, check=True)
    subprocess.run(
        [binary, "report", "speakers", "constant", "-o", "two.html"], cwd=folder, check=True
    )
    others = "main > section:not(#predictions):not(#worst-predictions) { display: none; }"
    page = (folder / "one.html").read_text().replace("</head>", f"<style>{others}</style></head>")
    (folder / "part.html").write_text(page)
    one, two, part = (folder / f"{name}.html" for name in ("one", "two", "part"))
    with chromium.Chromium(program) as browser:
        picture(browser, one, options.output / "report.png", 1000, 2170)
        picture(browser, two, options.output / "report-dark.png", 1000, 1300, dark=True)
        picture(browser, one, options.output / "report-phone.png", 390, 1400)
        picture(browser, part, options.output / "report-predictions.png", 1000, 900)
    if options.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
