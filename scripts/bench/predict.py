#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `finetune predict` with transformers' pipeline(batch_size=32) on texts of real lengths.

    scripts/bench/predict.py --binary build/finetune --input TEXTS [--column sentence1] [--layers 6]
        [--hidden 384] [--texts 2000] [--repeats 3] [--threads N] [--no-record]

TEXTS has a text a line, or JSON lines with --column. A BERT for two classes with random weights and a
WordPiece vocabulary of the texts is made once for both. Both answer all texts in the order of the
file, with the same number of threads, in turns; start and loading are measured apart with a single
text and subtracted. The scores have to agree to 1e-5. The best of the repeats counts; the result, with
its date, commit, cores and load, goes to scripts/bench/results/predict.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scripts/bench/results/predict.json"

PEER = """
import json, sys, time
import torch
from transformers import pipeline
model, texts, out, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
texts = [json.loads(line)["text"] for line in open(texts, encoding="utf-8")]
classify = pipeline("text-classification", model=model, device="cpu")
with open(out, "w") as file:
    for answer in classify(texts, batch_size=32, truncation=True, max_length=512):
        file.write(json.dumps(answer) + "\\n")
"""


def read_texts(path, column, limit):
    texts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)[column] if column else line
        if text.strip():
            texts.append(text.strip())
        if len(texts) == limit:
            break
    return texts


def make_model(folder, texts, layers, hidden):
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts, vocab_size=8000, show_progress=False)
    words.save_model(str(folder))
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(
        vocab_size=words.get_vocab_size(), hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden)).save_pretrained(folder)


def measure(command, environment):
    """Wall and CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_texts(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def largest_difference(ours, theirs):
    pairs = zip(ours.read_text().splitlines(), theirs.read_text().splitlines(), strict=True)
    worst = 0.0
    for a, b in pairs:
        a, b = json.loads(a), json.loads(b)
        a = a[0] if isinstance(a, list) else a
        if a["label"] != b["label"] and abs(a["score"] - 0.5) > 1e-5:
            sys.exit(f"error: {a} is not {b}")
        worst = max(worst, abs(a["score"] - b["score"]))
    return worst


def compare(arguments, folder):
    texts = read_texts(arguments.input, arguments.column, arguments.texts)
    model = folder / "model"
    model.mkdir()
    make_model(model, texts, arguments.layers, arguments.hidden)
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "true",
                   "TRANSFORMERS_VERBOSITY": "error"}  # fmt: skip
    sizes = {"all": texts, "one": texts[:1]}
    best = {}
    for _ in range(arguments.repeats):
        for size, some in sizes.items():
            source = folder / f"{size}.jsonl"
            write_texts(source, some)
            ours, theirs = folder / f"ours-{size}.jsonl", folder / f"theirs-{size}.jsonl"
            ours.unlink(missing_ok=True)
            commands = {
                "finetune": [arguments.binary, "predict", model, "--input", source, "--output", ours, "--use_cpu",
                             "--batch_size", "32", "--text_column", "text"],
                "pipeline": [sys.executable, "-c", PEER, model, source, theirs, str(arguments.threads)],
            }  # fmt: skip
            for name, command in commands.items():
                seconds = measure([str(word) for word in command], environment)
                known = best.setdefault((name, size), seconds)
                best[name, size] = tuple(min(pair) for pair in zip(known, seconds))
    result = {"texts": len(texts), "layers": arguments.layers, "hidden": arguments.hidden,
              "threads": arguments.threads,
              "largest_difference": largest_difference(folder / "ours-all.jsonl", folder / "theirs-all.jsonl")}  # fmt: skip
    for index, kind in enumerate(("wall", "cpu")):
        for name in ("finetune", "pipeline"):
            seconds = best[name, "all"][index] - best[name, "one"][index]
            if seconds <= 0:
                sys.exit(f"error: {name}'s start took longer than all texts: the machine is too busy, or --texts too small")
            result[f"{name}_{kind}_texts_per_second"] = round((len(texts) - 1) / seconds, 1)
            result[f"{name}_{kind}_start_seconds"] = round(best[name, "one"][index], 2)
        result[f"{kind}_ratio"] = round(result[f"finetune_{kind}_texts_per_second"]
                                        / result[f"pipeline_{kind}_texts_per_second"], 2)  # fmt: skip
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "build/finetune"))
    parser.add_argument("--input", required=True, type=pathlib.Path)
    parser.add_argument("--column")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(arguments, pathlib.Path(folder))
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    result = {"date": datetime.date.today().isoformat(), "commit": commit.stdout.strip(),
              "cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1), **result}  # fmt: skip
    print(json.dumps(result, indent=2))
    if result["largest_difference"] > 1e-5:
        sys.exit(f"error: scores differ by {result['largest_difference']:g}")
    if not arguments.no_record:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
