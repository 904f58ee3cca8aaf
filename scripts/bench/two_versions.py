#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CPU seconds of an update of two versions of the program, in turns.

    python3 scripts/bench/two_versions.py BEFORE AFTER [--only mlm sft] [--rounds 3]

Masked language modelling with an 84M RoBERTa, 16 x 128; sequences of real lengths with BERT-base's sizes, of which one
token is read; a Llama of SmolLM2-135M's sizes on conversations whose answers are a third of the tokens; answers of
the classifier to 1,000 texts. Models have random weights, which cost what trained ones do. Each
program trains for few and for more updates, and the difference takes the start off. Needs the packages of
tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from decision import cpu_seconds

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt"
TOKENIZERS = ROOT / "tests" / "fixtures" / "tokenizers"
FEW, MORE = 2, 8


def words(first, count):
    text = TEXT.read_text().split()
    return " ".join(text[(first + i) % len(text)] for i in range(count))


def make(folder):
    """Writes the rows."""
    (folder / "text.txt").write_text("\n".join(words(97 * i, 400) for i in range(200)) + "\n")
    with (folder / "labels.jsonl").open("w") as labels, (folder / "chats.jsonl").open("w") as chats:
        for i in range(1000):  # 8 to 59 words, 26 on average
            count = 8 + (i * 7919) % 37 + (i * 104729) % 16
            labels.write(json.dumps({"text": words(31 * i, count), "label": "ab"[i % 2]}) + "\n")
            chats.write(json.dumps({"prompt": words(13 * i, 100), "completion": " " + words(17 * i, 50)}) + "\n")


def configurations(folder):
    common = {"cache_dir": str(folder / "cache"), "save_strategy": "no", "report_to": "none", "use_cpu": True,
              "eval_strategy": "no", "learning_rate": 1e-5}  # fmt: skip
    roberta = {"model_type": "roberta", "tokenizer_name": str(TOKENIZERS / "lighthouse"),
               "config_overrides": {"num_hidden_layers": 6, "vocab_size": 50265}}  # fmt: skip
    llama = {"model_type": "llama", "tokenizer_name": str(TOKENIZERS / "causal"),
             "config_overrides": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
                                  "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
                                  "tie_word_embeddings": True, "max_position_embeddings": 2048}}  # fmt: skip
    chats = {"task": "sft", "train_file": str(folder / "chats.jsonl"), "max_seq_length": 512,
             "per_device_train_batch_size": 4}  # fmt: skip
    return {
        "mlm": {**common, **roberta, "task": "mlm", "train_file": str(folder / "text.txt"), "max_seq_length": 128,
                "per_device_train_batch_size": 16},
        "classification": {**common, "task": "sequence_classification", "model_type": "bert",
                           "tokenizer_name": str(TOKENIZERS / "lighthouse"),
                           "config_overrides": {"vocab_size": 30522, "pad_token_id": 1},
                           "train_file": str(folder / "labels.jsonl"),
                           "max_seq_length": 128, "per_device_train_batch_size": 16},
        "sft": {**common, **llama, **chats},
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        print("| CPU s | before | after | ratio |\n|---|---|---|---|", flush=True)

        def compare(what, seconds):
            times = {version: [] for version in (args.before, args.after)}
            for _ in range(args.rounds):
                for version, values in times.items():
                    values.append(seconds(version))
            before, after = (statistics.median(values) for values in times.values())
            print(f"| {what} | {before:.3f} | {after:.3f} | {after / before:.3f} |", flush=True)

        def train(version, what, updates, **more):
            keys = {**configurations(folder)[what], "max_steps": updates, "output_dir": str(folder / what), **more}
            shutil.rmtree(folder / what, ignore_errors=True)
            path = folder / f"{what}.json"
            path.write_text(json.dumps(keys))
            return cpu_seconds([version, "train", str(path)], args.threads)[0]

        for what in configurations(folder):
            if args.only and what not in args.only:
                continue
            compare(f"{what}, an update", lambda version, what=what: (
                train(version, what, MORE) - train(version, what, FEW)) / (MORE - FEW))  # fmt: skip
        if not args.only or "predict" in args.only:
            train(args.after, "classification", 1)
            command = ["predict", str(folder / "classification"), "--input", str(folder / "labels.jsonl"), "--output",
                       str(folder / "answers.jsonl")]  # fmt: skip
            compare("predict, 1,000 texts", lambda version: cpu_seconds([version, *command], args.threads)[0])


if __name__ == "__main__":
    sys.exit(main())
