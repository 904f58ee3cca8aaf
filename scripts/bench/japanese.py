#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fine-tunes a small Japanese encoder on three tasks and compares it with transformers' Trainer.

1. japanese.py --prepare_only: splits JGLUE's files, trains a tokenizer, pretrains WORK_DIR/encoder
2. japanese_peer.py: transformers' runs, from the same files and weights
3. japanese.py: our runs, a Markdown table, results/japanese.json, docs/japanese.svg

Exits 1 when a task's mean ends below the peer's by more than the peer's spread over the seeds, or
does not reach the floor that TASKS names. Needs nothing but the standard library.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import re
import sys
import unicodedata
from pathlib import Path

from esperanto import mean, run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VOCAB_SIZE = 2500
# Rows of 32 tokens hold a question or a pair of sentences, and a small model learns to look at the
# neighbours in them ten times sooner than in rows of 128.
PRETRAINING = dict(
    model_type="roberta",
    config_overrides=dict(
        vocab_size=VOCAB_SIZE,
        num_hidden_layers=3,
        num_attention_heads=4,
        hidden_size=128,
        intermediate_size=512,
        max_position_embeddings=130,  # 128 tokens; RoBERTa counts positions from 2
        type_vocab_size=1,
        layer_norm_eps=1e-12,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
    ),
    max_seq_length=32,
    mlm_probability=0.15,
    max_steps=3000,
    per_device_train_batch_size=64,
    learning_rate=2e-3,
    warmup_steps=100,
    weight_decay=0.01,
    seed=1,
    logging_steps=100,
    eval_strategy="steps",
    eval_steps=1000,
    save_steps=1000,
    save_total_limit=1,
)
FINE_TUNING_DROPOUT = 0.1
# "keys" are the same for both programs, "columns" are ours. "judged_on" is the part that the metric
# is taken from: "train" where there is too little data to learn the task from scratch. "floor" is
# what the mean must reach, in the units of the table.
TASKS = {
    "jcommonsenseqa": dict(
        title="JCommonsenseQA",
        metric="accuracy",
        scale=100,
        judged_on="train",
        floor=95,
        keys=dict(
            task="multiple_choice",
            max_seq_length=64,
            num_train_epochs=20,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            eval_steps=20,
        ),
        columns=dict(
            context_column="question",
            choice_columns=[f"choice{i}" for i in range(5)],
            label_column="label",
        ),
    ),
    "jsts": dict(
        title="JSTS",
        metric="pearson",
        scale=1,
        judged_on="valid",
        floor=0.3,
        keys=dict(
            task="sequence_classification",
            max_seq_length=128,
            num_train_epochs=3,
            per_device_train_batch_size=32,
            learning_rate=5e-4,
            eval_steps=195,
        ),
        columns=dict(text_column="sentence1", text_pair_column="sentence2", label_column="label"),
    ),
    "jsquad": dict(
        title="JSQuAD",
        metric="exact_match",
        scale=1,
        judged_on="train",
        floor=95,
        keys=dict(
            task="question_answering",
            max_seq_length=128,
            doc_stride=32,
            max_answer_length=30,
            n_best_size=20,
            num_train_epochs=14,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            eval_steps=38,
        ),
        columns={},
    ),
}
EVERY_TASK = dict(
    per_device_eval_batch_size=64,
    lr_scheduler_type="linear",
    warmup_steps=0.1,
    weight_decay=0.01,
    max_grad_norm=1.0,
    eval_strategy="steps",
    logging_steps=50,
    save_strategy="no",
)
TRAINING_QUESTIONS = 120  # of JCommonsenseQA and JSQuAD, which take more than this to learn


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path, rows):
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    path.write_text(text, encoding="utf-8")


def part_path(work, task, part):
    """The file of a task's part, "train" or "valid"."""
    suffix = "json" if TASKS[task]["keys"]["task"] == "question_answering" else "jsonl"
    return work / f"{task}-{part}.{suffix}"


def read_questions(path):
    """Flat rows of a file in SQuAD's layout, in file order."""
    rows = []
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            rows += [{**qa, "context": paragraph["context"]} for qa in paragraph["qas"]]
    return rows


def encoder_hash(work):
    return hashlib.sha256((work / "encoder" / "model.safetensors").read_bytes()).hexdigest()


def cut_by_kind(context, answer):
    """Whether the answer starts and ends where letters, digits and signs meet: no tokenizer of
    the byte-level kind has a token across such a place, so that the exact answer can be said."""

    def kind(at):
        category = unicodedata.category(context[at])[0]
        return category if category in "LN" else ""

    first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    begins = first == 0 or kind(first - 1) != kind(first)
    return begins and (last == len(context) or kind(last - 1) != kind(last))


def few_questions(articles, count):
    """The first questions with answers that are whole tokens, about paragraphs of one screen."""
    chosen = []
    for article in articles:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            if len(context) > 300:
                continue
            qas = [qa for qa in paragraph["qas"] if cut_by_kind(context, qa["answers"][0])][:count]
            count -= len(qas)
            if qas:
                paragraphs.append({"context": context, "qas": qas})
        if paragraphs:
            chosen.append({"title": article["title"], "paragraphs": paragraphs})
    return chosen


def split(data, work):
    """Writes every part's file and the text of pretraining, which holds nothing of a "valid" part.

    JSQuAD is split by article: every fifth article is held out, from pretraining too.
    """
    work.mkdir(parents=True, exist_ok=True)
    articles = json.loads((data / "jsquad-valid.json").read_text(encoding="utf-8"))["data"]
    held_out = articles[4::5]
    kept = [a for a in articles if a not in held_out]
    for name, part in (
        ("train", few_questions(kept, TRAINING_QUESTIONS)),
        ("valid", held_out),
    ):
        text = json.dumps({"version": "1.1", "data": part}, ensure_ascii=False)
        (work / f"jsquad-{name}.json").write_text(text, encoding="utf-8")
    titles = {article["title"] for article in held_out}
    texts = {"train": [], "valid": []}
    for line in (data / "japanese.txt").read_text(encoding="utf-8").splitlines():
        title, text = line.split(" [SEP] ", 1)
        texts["valid" if title in titles else "train"].append(text)
    for article in kept:
        for paragraph in article["paragraphs"]:
            texts["train"] += [qa["question"] for qa in paragraph["qas"]]
    choices = read_rows(data / "jcommonsenseqa-train.jsonl")
    write_rows(work / "jcommonsenseqa-train.jsonl", choices[:TRAINING_QUESTIONS])
    write_rows(work / "jcommonsenseqa-valid.jsonl", read_rows(data / "jcommonsenseqa-valid.jsonl"))
    for name in ("train", "valid"):
        write_rows(work / f"jsts-{name}.jsonl", read_rows(data / f"jsts-{name}.jsonl"))
    for row in choices:
        texts["train"].append(row["question"] + " " + row[f"choice{row['label']}"])
        texts["train"].append("、".join(row[f"choice{i}"] for i in range(5)))
    for row in read_rows(work / "jsts-train.jsonl"):
        texts["train"].append(row["sentence1"] + " " + row["sentence2"])
    for name, part in texts.items():
        (work / f"pretrain-{name}.txt").write_text("\n".join(part) + "\n", encoding="utf-8")


def pretrain(args, work, env):
    """Trains the tokenizer and WORK/pretraining; an interrupted run resumes."""
    command = [args.binary, "tokenizer", "train", "--type", "byte_level_bpe", "--overwrite"]
    command += ["--vocab_size", VOCAB_SIZE, "--output", work / "tokenizer"]
    run([*command, work / "pretrain-train.txt"], env)
    config = dict(
        PRETRAINING,
        output_dir=str(work / "pretraining"),
        tokenizer_name=str(work / "tokenizer"),
        train_file=str(work / "pretrain-train.txt"),
        validation_file=str(work / "pretrain-valid.txt"),
        cache_dir=str(work / "cache"),
    )
    path = work / "pretraining.json"
    path.write_text(json.dumps(config, indent=1))
    run([args.binary, "train", path], env)


def make_encoder(work):
    """Writes WORK/encoder, the folder that both programs fine-tune, and what its making was."""
    encoder = work / "encoder"
    encoder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (encoder / name).write_bytes((work / "pretraining" / name).read_bytes())
    # Pretraining is too short to over-fit, fine-tuning is not.
    model = json.loads((work / "pretraining" / "config.json").read_text())
    model["hidden_dropout_prob"] = model["attention_probs_dropout_prob"] = FINE_TUNING_DROPOUT
    (encoder / "config.json").write_text(json.dumps(model, indent=2) + "\n")
    log = json.loads((work / "pretraining" / "trainer_state.json").read_text())["log_history"]
    result = {
        "encoder_sha256": encoder_hash(work),
        "loss_curve": [{"step": r["step"], "loss": r["loss"]} for r in log if "loss" in r],
        "eval_loss": [r["eval_loss"] for r in log if "eval_loss" in r][-1],
    }
    (work / "pretraining-result.json").write_text(json.dumps(result))


def metrics_of(record):
    """The numbers of one evaluation, without "eval_", times and counts."""
    plain = {k.removeprefix("eval_"): v for k, v in record.items() if k.startswith("eval_")}
    skipped = ("runtime", "samples_per_second", "steps_per_second", "samples")
    return {k: v for k, v in plain.items() if k not in skipped}


def fine_tune(args, work, task, seed, env):
    about = TASKS[task]
    output = work / "ours" / f"{task}-{seed}"
    config = {
        **EVERY_TASK,
        **about["keys"],
        **about["columns"],
        "model_name_or_path": str(work / "encoder"),
        "train_file": str(part_path(work, task, "train")),
        "validation_file": str(part_path(work, task, about["judged_on"])),
        "output_dir": str(output),
        "cache_dir": str(work / "cache"),
        "seed": seed,
    }
    path = work / f"ours-{task}-{seed}.json"
    path.write_text(json.dumps(config, indent=1))
    seconds, cpu, peak, _ = run([args.binary, "train", path], env)
    state = json.loads((output / "trainer_state.json").read_text())
    log = state["log_history"]
    curve = [{"step": r["step"], **metrics_of(r)} for r in log if any("eval_" in k for k in r)]
    if curve[-1]["step"] != state["global_step"]:
        final = evaluate(args, work, task, output, about["judged_on"], env)
        curve.append({"step": state["global_step"], **final})
    held_out = curve[-1]
    if about["judged_on"] != "valid":
        held_out = evaluate(args, work, task, output, "valid", env)
    return {
        "task": task,
        "seed": seed,
        "updates": state["global_step"],
        "curve": curve,
        "held_out": held_out,
        "loss_curve": [{"step": r["step"], "loss": r["loss"]} for r in log if "loss" in r],
        "process_seconds": seconds,
        "process_cpu_seconds": cpu,
        "peak_rss_bytes": peak,
    }


def evaluate(args, work, task, model, part, env):
    about = TASKS[task]
    training = ("num_train_epochs", "per_device_train_batch_size", "learning_rate", "eval_steps")
    output = model.with_name(f"{model.name}-{part}")
    config = {
        **{k: v for k, v in about["keys"].items() if k not in training},
        **about["columns"],
        "model_name_or_path": str(model),
        "validation_file": str(part_path(work, task, part)),
        "output_dir": str(output),
        "cache_dir": str(work / "cache"),
        "per_device_eval_batch_size": EVERY_TASK["per_device_eval_batch_size"],
    }
    path = output.with_suffix(".json")
    path.write_text(json.dumps(config, indent=1))
    run([args.binary, "evaluate", path], env)
    return metrics_of(json.loads((output / "eval_results.json").read_text()))


def sentence_like(row):
    """The sentence of the context that shares most pairs of characters with the question."""
    pairs = set(zip(row["question"], row["question"][1:]))
    text = row["context"].split(" [SEP] ", 1)[-1]
    sentences = [s for s in re.split("。", text) if s] or [text]
    return max(sentences, key=lambda s: len(pairs & set(zip(s, s[1:]))))


def baselines(work):
    """On what a task is judged on: the commonest label, a constant, the likeliest sentence."""
    train = read_rows(work / "jcommonsenseqa-train.jsonl")
    majority = collections.Counter(r["label"] for r in train).most_common(1)[0][1]
    questions = read_questions(work / "jsquad-train.json")
    exact = [sentence_like(q) in {a["text"] for a in q["answers"]} for q in questions]
    return {
        "jcommonsenseqa": majority / len(train),
        "jsts": 0.0,  # a constant does not correlate
        "jsquad": 100 * mean(exact),
    }


def summary(runs, task):
    """(mean, least, most) of a task's final metric over the seeds."""
    about = TASKS[task]
    finals = [r["curve"][-1][about["metric"]] * about["scale"] for r in runs if r["task"] == task]
    return mean(finals), min(finals), max(finals)


def cpu_seconds(run_):
    """Ours counts the whole process, the peer's only trainer.train(): start-up is against us."""
    return run_.get("process_cpu_seconds") or run_["train_cpu_seconds"]


METRICS = {
    "jcommonsenseqa": [("accuracy", 100, "accuracy, %")],
    "jsts": [("pearson", 1, "Pearson"), ("spearmanr", 1, "Spearman")],
    "jsquad": [("exact_match", 1, "EM, %"), ("f1", 1, "F1, %")],
}


def table(ours, peer, base):
    lines = ["| | finetune | transformers | baseline |", "|---|---|---|---|"]
    for task, about in TASKS.items():
        sides = [[r for r in runs if r["task"] == task] for runs in (ours, peer)]
        where = "on its training set" if about["judged_on"] == "train" else "held out"
        for metric, scale, name in METRICS[task]:
            digits = 1 if "%" in name else 3
            cells = []
            for runs in sides:
                values = [r["curve"][-1][metric] * scale for r in runs]
                each = ", ".join(f"{v:.{digits}f}" for v in values)
                cells.append(f"**{mean(values):.{digits}f}** ({each})")
            first = metric == about["metric"]
            baseline = f"{base[task] * about['scale']:.{digits}f}" if first else ""
            cells = " | ".join(cells)
            lines.append(f"| {about['title']}, {name}, {where} | {cells} | {baseline} |")
        if about["judged_on"] == "train":
            metric, scale, name = METRICS[task][0]
            held = [f"{mean(r['held_out'][metric] * scale for r in runs):.1f}" for runs in sides]
            lines.append(f"| {about['title']}, {name}, held out | {' | '.join(held)} | |")
        cpu = [f"{mean(map(cpu_seconds, runs)):.0f}" for runs in sides]
        lines.append(f"| {about['title']}, CPU seconds of training, mean | {' | '.join(cpu)} | |")
    return "\n".join(lines)


def panel(task, sides, left, base):
    """One task's curves in a box of 240 by 230 points at `left`."""
    about = TASKS[task]
    metric, scale = about["metric"], about["scale"]
    curves = [
        (colour, [(p["step"], p[metric] * scale) for p in r["curve"]])
        for runs, colour in sides
        for r in runs
        if r["task"] == task
    ]
    last = max(step for _, curve in curves for step, _ in curve)
    name = METRICS[task][0][2]
    high = 100 if "%" in name else math.ceil(max(v for _, c in curves for _, v in c) * 10) / 10

    def x(step):
        return left + 36 + 194 * step / last

    def y(value):
        return 30 + 190 * (high - value) / high

    digits = 0 if "%" in name else 2
    part = " training" if about["judged_on"] == "train" else ""
    out = [f'<text x="{left + 36}" y="16">{about["title"]}{part}, {name}</text>']
    for i in range(6):
        value = high * i / 5
        out.append(
            f'<path d="M{left + 36} {y(value):.1f}h194" stroke="#80808040"/><text x="{left + 30}" '
            f'y="{y(value) + 4:.1f}" text-anchor="end">{value:.{digits}f}</text>'
        )
    for i in (0, 1, 2):
        out.append(
            f'<text x="{x(last * i / 2):.1f}" y="240" text-anchor="middle">{last * i // 2}</text>'
        )
    out.append(
        f'<path d="M{left + 36} {y(base * scale):.1f}h194" stroke="#808080" '
        'stroke-dasharray="4 4"/>'
    )
    for colour, curve in curves:
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in curve)
        out.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" '
            'stroke-opacity="0.85"/>'
        )
    return out


def draw(ours, peer, base, path):
    """An SVG with a panel for each task, readable on a light and on a dark page."""
    sides = [(peer, "#e0803c"), (ours, "#3c80e0")]
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 280" '
        'font-family="sans-serif" font-size="10" fill="#808080">',
        "<title>Three Japanese tasks after each update: finetune and transformers</title>",
    ]
    for i, task in enumerate(TASKS):
        out += panel(task, sides, 245 * i, base[task])
    legend = [
        (36, "#e0803c", "", "transformers"),
        (170, "#3c80e0", "", "finetune"),
        (280, "#808080", ' stroke-dasharray="4 4"', "baseline"),
    ]
    for at, colour, dash, name in legend:
        out.append(
            f'<path d="M{at} 264h24" stroke="{colour}" stroke-width="2"{dash}/>'
            f'<text x="{at + 32}" y="268">{name}</text>'
        )
    out += ['<text x="700" y="268" text-anchor="end">updates</text>', "</svg>"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def verdicts(ours, peer, base):
    """Prints one line for each task; whether all are as they should be."""
    good = True
    for task, about in TASKS.items():
        mine, _, _ = summary(ours, task)
        theirs, low, high = summary(peer, task)
        below, reaches = mine < theirs - (high - low), mine >= about["floor"]
        good = good and not below and reaches
        print(
            f"{about['title']}: {mine:.3f} {'BELOW' if below else 'not below'} {theirs:.3f} - "
            f"{high - low:.3f}, {'reaches' if reaches else 'DOES NOT REACH'} {about['floor']} "
            f"(baseline {base[task] * about['scale']:.3f})"
        )
    return good


def measure(args, work, env):
    """Our runs; those that --output already has are kept, so that an interrupted run resumes."""
    runs = []
    if args.output.is_file():
        known = json.loads(args.output.read_text())
        if known["encoder_sha256"] == encoder_hash(work):
            runs = known["runs"]
    for task in args.tasks:
        for seed in args.seeds:
            if any((r["task"], r["seed"]) == (task, seed) for r in runs):
                continue
            print(f"{task}, seed {seed} ...", file=sys.stderr)
            runs.append(fine_tune(args, work, task, seed, env))
            runs.sort(key=lambda r: (list(TASKS).index(r["task"]), r["seed"]))
            result = {
                "threads": args.threads,
                "encoder_sha256": encoder_hash(work),
                "pretraining": json.loads((work / "pretraining-result.json").read_text()),
                "baselines": baselines(work),
                "runs": runs,
            }
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    data = os.environ.get("JGLUE_DATA")
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--data", type=Path, default=data and Path(data))
    parser.add_argument("--work_dir", type=Path, help="keeps files, models and logs")
    parser.add_argument("--prepare_only", action="store_true", help="stop after pretraining")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", type=Path, default=HERE / "results" / "japanese_peer.json")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "japanese.json")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "japanese.svg")
    parser.add_argument("--draw_only", action="store_true", help="table and SVG from --output")
    args = parser.parse_args()
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if not args.draw_only:
        if args.work_dir is None:
            parser.error("name a folder for files and models with --work_dir")
        work = args.work_dir.resolve()
        if not (work / "encoder" / "config.json").is_file():
            if args.data is None:
                parser.error("name the folder of JGLUE's files with --data or JGLUE_DATA")
            split(args.data.resolve(), work)
            pretrain(args, work, env)
            make_encoder(work)
        if args.prepare_only:
            return 0
        measure(args, work, env)
    if not args.peer.is_file():
        raise SystemExit(f"{args.peer} is not there: run japanese_peer.py first")
    ours, peer = (json.loads(path.read_text()) for path in (args.output, args.peer))
    if ours["encoder_sha256"] != peer["encoder_sha256"]:
        raise SystemExit(f"{args.peer} was made from other weights; run japanese_peer.py again")
    base = ours["baselines"]
    draw(ours["runs"], peer["runs"], base, args.svg)
    print(table(ours["runs"], peer["runs"], base), end="\n\n")
    return 0 if verdicts(ours["runs"], peer["runs"], base) else 1


if __name__ == "__main__":
    sys.exit(main())
