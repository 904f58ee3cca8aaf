#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether a model that configs/chat.yaml taught answers in the taught form and stops by itself.

Trains SmolLM2 on 500 questions of JCommonsenseQA for each seed, answers 100 others greedily, and
counts: answers that are a number and one of the five choices, answers whose number is that choice's, right
answers, and answers that end before the limit of tokens. A seed takes 25 minutes on one core.
Prints a Markdown table; exits with 1 if a limit is exceeded.

    scripts/make_smollm2.py smollm2
    scripts/bench/chat_answers.py --model smollm2 --data FOLDER   (jcommonsenseqa-{train,valid}.jsonl)
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
QUESTIONS = 100
FORM, STOPS = 0.95, 0.99  # least shares


def count(rows, answers):
    """Returns how many answers have the form, its number, the right answer, and an end."""
    form = number = right = stops = 0
    for row, answer in zip(rows, answers, strict=True):
        question, taught = (message["content"] for message in row["messages"])
        text = answer["messages"][-1]["content"]
        choices = re.findall(r"^\d\. (.*)$", question, re.MULTILINE)
        found = re.fullmatch(r"([1-5])\. (.+)", text)
        form += bool(found) and found[2] in choices
        number += bool(found) and choices[int(found[1]) - 1] == found[2]
        right += text == taught
        stops += len(text) < 64  # 256 tokens have more characters
    return form, number, right, stops


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    failed = False
    print("| seed | taught form | with the choice's number | right | stops |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for split, rows in (("train", 500), ("valid", QUESTIONS)):
            files[split] = Path(folder) / f"{split}.jsonl"
            source = options.data / f"jcommonsenseqa-{split}.jsonl"
            subprocess.run([ROOT / "scripts" / "make_chat_rows.py", source, files[split], "--rows", str(rows)], check=True)
        rows = [json.loads(line) for line in files["valid"].read_text().splitlines()]
        for seed in options.seeds:
            run, out = Path(folder) / f"run-{seed}", Path(folder) / "answers.jsonl"
            keys = {"model_name_or_path": options.model, "train_file": files["train"],
                    "validation_file": files["valid"], "output_dir": run, "seed": seed}  # fmt: skip
            words = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
            subprocess.run(
                [options.binary, "train", ROOT / "configs" / "chat.yaml", *words], check=True, stderr=subprocess.DEVNULL
            )
            subprocess.run(
                [options.binary, "predict", run, "--chat", "--input", files["valid"], "--output", out],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            counts = count(rows, [json.loads(line) for line in out.read_text().splitlines()])
            print(f"| {seed} | " + " | ".join(f"{one} of {len(rows)}" for one in counts) + " |", flush=True)
            failed |= counts[0] < FORM * len(rows) or counts[3] < STOPS * len(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
