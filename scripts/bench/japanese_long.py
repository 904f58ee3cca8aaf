#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The whole path to a long-document model, in small: a SentencePiece vocabulary, examples in shards,
BigBird pretraining at 4,096 tokens with interruptions, and questions about whole articles.

Writes results/japanese_long.json and docs/japanese_long.svg. Exits 1 where a step
did not take the sparse path, an interruption changed a bit, or the loss did not fall. Needs nothing
but the standard library.
"""

import argparse
import collections
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SYMBOLS = "_START_ARTICLE_,_START_SECTION_,_START_PARAGRAPH_,_NEWLINE_"
TOKENS = 4096
MODEL = dict(
    num_hidden_layers=2,
    num_attention_heads=4,
    hidden_size=128,
    intermediate_size=512,
    max_position_embeddings=TOKENS,
    attention_type="block_sparse",
    block_size=64,
    num_random_blocks=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.05,
)
PRETRAINING = dict(
    task="pretraining",
    model_type="big_bird",
    config_overrides=MODEL,
    max_seq_length=TOKENS,
    mlm_probability=0.15,
    max_predictions_per_seq=600,
    dupe_factor=10,
    short_seq_prob=0.0,
    pad_to_max_length=True,
    per_device_train_batch_size=1,
    learning_rate=5e-4,
    weight_decay=0.01,
    warmup_steps=15,
    save_steps=25,
    save_total_limit=2,
    logging_steps=5,
    seed=1,
)
QUESTIONS = dict(
    task="question_answering",
    max_seq_length=TOKENS,
    doc_stride=512,
    max_answer_length=30,
    pad_to_max_length=True,
    per_device_train_batch_size=1,
    per_device_eval_batch_size=1,
    learning_rate=1e-3,
    lr_scheduler_type="linear",
    warmup_steps=0.1,
    weight_decay=0.01,
    eval_strategy="no",
    do_eval=True,
    save_strategy="no",
    logging_steps=10,
    seed=1,
)


def say(text):
    print(text, file=sys.stderr, flush=True)


def start(binary, work, name, *words, env=None):
    """The process and the path of what it says on standard error."""
    log = work / f"{name}.log"
    say(f"$ finetune {' '.join(map(str, words))}")
    with log.open("ab") as stream:
        command = [str(binary), *map(str, words)]
        return subprocess.Popen(command, stderr=stream, stdout=subprocess.PIPE, env=env), log


def run(binary, work, name, *words):
    begun = time.monotonic()
    process, log = start(binary, work, name, *words)
    process.communicate()
    if process.returncode != 0:
        sys.exit(f"finetune {words[0]} failed:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begun


def write_texts(data, work, symbols=("_START_ARTICLE_", "_START_PARAGRAPH_")):
    """Articles in the marks of Wikipedia's text, an empty line between them."""
    articles = collections.OrderedDict()
    for line in (data / "japanese.txt").read_text(encoding="utf-8").splitlines():
        title, text = line.split(" [SEP] ", 1)
        articles.setdefault(title, []).append(text)
    blocks = []
    for title, paragraphs in articles.items():
        lines = [symbols[0], title]
        for paragraph in paragraphs:
            lines += [symbols[1], paragraph]
        blocks.append("\n".join(lines) + "\n")
    (work / "articles.txt").write_text("\n".join(blocks), encoding="utf-8")
    return len(articles)


def write_questions(data, work, count):
    """SQuAD's layout with a whole article as the context of each question; one question for each
    article of 700 to 4,000 characters, then a second one, and so on."""
    chosen = []
    articles = json.loads((data / "jsquad-valid.json").read_text(encoding="utf-8"))["data"]
    for article in articles:
        context, rows = "", []
        for paragraph in article["paragraphs"]:
            title, text = paragraph["context"].split(" [SEP] ", 1)
            shift = len(context) - len(title) - len(" [SEP] ")
            for qa in paragraph["qas"]:
                answer = qa["answers"][0]
                begin = answer["answer_start"] + shift
                if begin >= len(context):
                    rows.append(
                        {**qa, "answers": [{"text": answer["text"], "answer_start": begin}]}
                    )
            context += text + "\n"
        if 700 <= len(context) <= 4000:
            chosen.append((context, rows))
    taken = collections.defaultdict(list)
    for turn in range(100):
        for context, rows in chosen:
            if turn < len(rows) and sum(map(len, taken.values())) < count:
                taken[context].append(rows[turn * 7 % len(rows)])
    data = [
        {"title": str(i), "paragraphs": [{"context": context, "qas": qas}]}
        for i, (context, qas) in enumerate(taken.items())
    ]
    for article in data:
        for qa in article["paragraphs"][0]["qas"]:
            begin = qa["answers"][0]["answer_start"]
            text = qa["answers"][0]["text"]
            assert article["paragraphs"][0]["context"][begin : begin + len(text)] == text
    path = work / "questions.json"
    path.write_text(json.dumps({"version": "1.1", "data": data}, ensure_ascii=False))
    lengths = [len(a["paragraphs"][0]["context"]) for a in data]
    return sum(lengths) / len(lengths)


def write_config(work, name, keys):
    path = work / f"{name}.json"
    output = dict(output_dir=str(work / name), cache_dir=str(work / "cache"), report_to="none")
    path.write_text(json.dumps({**keys, **output, "use_cpu": True}, indent=1))
    return path


def steps_of(log):
    """The last step that the log names with a loss."""
    last = 0
    for line in log.read_text(errors="replace").splitlines():
        word = line.split(" ", 2)
        if line.startswith("train ") and " loss " in line:
            last = int(word[1].split("/")[0])
    return last


def pretrain_with_interruptions(binary, work, config, stops):
    """Starts until the run is finished; returns the steps where it was stopped, and how."""
    happened = []
    for how, step in [*stops, (None, None)]:
        process, log = start(binary, work, "interrupted", "train", config)
        while how is not None and process.poll() is None and steps_of(log) < step:
            time.sleep(0.2)
        if how is not None and process.poll() is None:
            process.send_signal(how)
            happened.append((signal.Signals(how).name, steps_of(log)))
        process.communicate()
        wanted = {None: 0, signal.SIGTERM: 75, signal.SIGKILL: -9}[how]
        if process.returncode != wanted:
            sys.exit(f"exit code {process.returncode} where {wanted} was expected:\n"
                     + log.read_text()[-2000:])  # fmt: skip
        say(f"  ended with {process.returncode}")
    return happened


def log_history(folder):
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def losses(folder):
    return [(row["step"], row["loss"]) for row in log_history(folder) if "loss" in row]


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def panel(title, curves, left, marks=()):
    """Curves [(colour, name, [(step, value)])] in a box of 340 by 230 points."""
    last = max(step for _, _, curve in curves for step, _ in curve)
    high = max(value for _, _, curve in curves for _, value in curve)

    def x(step):
        return left + 36 + 290 * step / last

    def y(value):
        return 30 + 190 * (high - value) / high

    out = [f'<text x="{left + 36}" y="16">{title}</text>']
    for i in range(5):
        at = y(high * i / 4)
        out.append(f'<path d="M{left + 36} {at:.1f}h290" stroke="#80808040"/>')
        out.append(
            f'<text x="{left + 30}" y="{at + 4:.1f}" text-anchor="end">{high * i / 4:.1f}</text>'
        )
    for name, step in marks:
        out.append(f'<path d="M{x(step):.1f} 30v190" stroke="#c04040" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{x(step) + 3:.1f}" y="210" fill="#c04040">{name}</text>')
    for i, (colour, name, curve) in enumerate(curves):
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in curve)
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        out.append(f'<text x="{left + 200}" y="{60 + 14 * i}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{left + 36}" y="236">0</text>')
    out.append(f'<text x="{left + 326}" y="236" text-anchor="end">{last} updates</text>')
    return out


def plot(path, result):
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 250" font-family="sans-serif" '
        'font-size="10" fill="#808080">',
        "<title>Pretraining at 4,096 tokens and questions about whole articles</title>",
    ]
    lines += panel("Pretraining at 4,096 tokens, loss", [("#4080c0", "", result["pretraining"])], 0,
                   result["interruptions"])  # fmt: skip
    colours = ("#4080c0", "#c08040")
    named = [(c, n, r["curve"]) for c, (n, r) in zip(colours, result["questions"].items())]
    lines += panel("Questions about whole articles, loss", named, 370)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


def fine_tune(args, work, name, keys):
    path = write_config(work, name, {**QUESTIONS, **keys, "num_train_epochs": args.epochs,
                                     "train_file": str(work / "questions.json"),
                                     "validation_file": str(work / "questions.json")})  # fmt: skip
    seconds = run(args.binary, work, name, "train", path)
    last = json.loads((work / name / "all_results.json").read_text())
    return {"curve": losses(work / name), "seconds": seconds,
            "exact_match": last["eval_exact_match"], "f1": last["eval_f1"]}  # fmt: skip


def check_sparse(path):
    text = path.read_text(errors="replace")
    if "block-sparse attention" not in text or "full attention" in text:
        sys.exit(f"{path}: not every step took the sparse path")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--data", type=Path, required=True, help="japanese.txt, jsquad-valid.json")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "japanese_long")
    parser.add_argument("--vocab_size", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--compare", action="store_true", help="fine-tune from scratch too")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "japanese_long.json")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "japanese_long.svg")
    return parser.parse_args()


def make_shards(args, work):
    tokenizer = work / "tokenizer"
    run(args.binary, work, "tokenizer", "tokenizer", "train", "--type", "sentencepiece_unigram",
        "--vocab_size", args.vocab_size, "--user_defined_symbols", SYMBOLS, "--overwrite",
        "--output", tokenizer, work / "articles.txt")  # fmt: skip
    keys = {**PRETRAINING, "max_steps": args.steps, "tokenizer_name": str(tokenizer)}
    keys["config_overrides"] = {**MODEL, "vocab_size": args.vocab_size}
    drawing = {**keys, "train_file": str(work / "articles.txt"), "num_shards": 7,
               "prepare_output_dir": str(work / "shards")}  # fmt: skip
    seconds = run(args.binary, work, "prepare", "prepare", write_config(work, "drawing", drawing))
    return {**keys, "train_file": str(work / "shards" / "*.tfrecord*")}, seconds


def main():
    args = read_arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work = args.work
    work.mkdir(parents=True, exist_ok=True)
    articles = write_texts(args.data, work)
    characters = write_questions(args.data, work, args.questions)
    keys, drawing_seconds = make_shards(args, work)

    begun = time.monotonic()
    straight, log = start(args.binary, work, "straight", "train",
                          write_config(work, "straight", keys))  # fmt: skip
    stops = [(signal.SIGTERM, args.steps // 4), (signal.SIGKILL, args.steps // 2),
             (signal.SIGTERM, 3 * args.steps // 4)]  # fmt: skip
    happened = pretrain_with_interruptions(
        args.binary, work, write_config(work, "interrupted", keys), stops
    )
    straight.communicate()
    if straight.returncode != 0:
        sys.exit(log.read_text()[-2000:])
    both_seconds = time.monotonic() - begun
    check_sparse(log)
    check_sparse(work / "interrupted.log")
    equal = digest(work / "straight") == digest(work / "interrupted")
    curve = losses(work / "interrupted")

    starts = {"pretrained": {"model_name_or_path": str(work / "interrupted")}}
    if args.compare:
        fresh = ("model_type", "tokenizer_name", "config_overrides")
        starts["from scratch"] = {k: keys[k] for k in fresh}
    result = {
        "articles": articles,
        "characters_of_a_context": round(characters),
        "drawing_seconds": drawing_seconds,
        "seconds_of_both_pretrainings": both_seconds,
        "pretraining": curve,
        "interruptions": happened,
        "equal_bits": equal,
        "questions": {
            name: fine_tune(args, work, name.replace(" ", "-"), start_keys)
            for name, start_keys in starts.items()
        },
    }
    args.results.write_text(json.dumps(result, indent=1) + "\n")
    plot(args.plot, result)
    for name, row in result["questions"].items():
        print(f"{name}: exact match {row['exact_match']:.1f} %, F1 {row['f1']:.1f} %")
    fell = curve[-1][1] < 0.9 * curve[0][1]
    print(f"\nloss {curve[0][1]:.2f} to {curve[-1][1]:.2f}; "
          f"{'equal bits' if equal else 'OTHER BITS'} after {happened}")  # fmt: skip
    sys.exit(not (equal and fell))


if __name__ == "__main__":
    main()
