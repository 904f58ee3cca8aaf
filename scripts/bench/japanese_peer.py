#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fine-tunes the small Japanese encoder with transformers' Trainer, once per task and seed.

This is the yardstick for japanese.py, which has made the folder --work_dir: the same files, weights
and keys, with the rows made as run_swag, run_glue and run_qa make them. Runs that --output already
has from the same weights are kept, so that an interrupted run resumes.
"""

import argparse
import collections
import json
import os
import platform
import re
import resource
import string
import sys
import tempfile
import time
from pathlib import Path

from japanese import (
    EVERY_TASK,
    TASKS,
    encoder_hash,
    metrics_of,
    part_path,
    read_questions,
    read_rows,
)

HERE = Path(__file__).resolve().parent
DATA_KEYS = ("task", "max_seq_length", "doc_stride", "max_answer_length", "n_best_size")


def multiple_choice_rows(tokenizer, settings, path):
    """One row holds five pairs of the question and a choice."""
    rows = []
    for row in read_rows(path):
        choices = [row[f"choice{i}"] for i in range(5)]
        pairs = tokenizer(
            [row["question"]] * 5, choices, truncation=True, max_length=settings["max_seq_length"]
        )
        rows.append({**pairs, "label": row["label"]})
    return rows


class MultipleChoiceCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        import torch

        labels = [row.get("label", row.get("labels")) for row in rows]
        flat = [
            {key: row[key][choice] for key in ("input_ids", "attention_mask")}
            for row in rows
            for choice in range(5)
        ]
        batch = self.tokenizer.pad(flat, padding=True, return_tensors="pt")
        batch = {key: value.view(len(rows), 5, -1) for key, value in batch.items()}
        batch["labels"] = torch.tensor(labels)
        return batch


def pair_rows(tokenizer, settings, path):
    rows = []
    for row in read_rows(path):
        pair = tokenizer(
            row["sentence1"],
            row["sentence2"],
            truncation=True,
            max_length=settings["max_seq_length"],
        )
        rows.append({**pair, "label": float(row["label"])})
    return rows


class QuestionRows:
    """Every window of every question, with the offsets that lead back to its text."""

    def __init__(self, tokenizer, settings, path):
        self.settings = settings
        self.questions = read_questions(path)
        encoded = tokenizer(
            [row["question"].lstrip() for row in self.questions],
            [row["context"] for row in self.questions],
            truncation="only_second",
            max_length=settings["max_seq_length"],
            stride=settings["doc_stride"],
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        self.features, self.offsets = [], []
        self.owners = encoded["overflow_to_sample_mapping"]
        for i, owner in enumerate(self.owners):
            inside = [part == 1 for part in encoded.sequence_ids(i)]
            spans = encoded["offset_mapping"][i]
            self.offsets.append([span if here else None for span, here in zip(spans, inside)])
            ids = encoded["input_ids"][i]
            place = answer_place(self.questions[owner]["answers"][0], self.offsets[-1])
            start, end = place or [ids.index(tokenizer.cls_token_id)] * 2
            self.features.append(
                {
                    "input_ids": ids,
                    "attention_mask": encoded["attention_mask"][i],
                    "start_positions": start,
                    "end_positions": end,
                }
            )

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index]


def answer_place(answer, spans):
    """The first and last token of the answer, or None where the window lacks a part of it."""
    begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    context = [t for t, span in enumerate(spans) if span]
    if spans[context[0]][0] > begin or spans[context[-1]][1] < end:
        return None
    return (
        max(t for t in context if spans[t][0] <= begin),
        min(t for t in context if spans[t][1] >= end),
    )


def best_answers(rows, starts, ends):
    """The most probable text for every question, searched as run_qa does."""
    import numpy as np

    best = {}
    top = rows.settings["n_best_size"]
    for owner, spans, start, end in zip(rows.owners, rows.offsets, starts, ends):
        for s in np.argsort(start)[-1 : -top - 1 : -1].tolist():
            for e in np.argsort(end)[-1 : -top - 1 : -1].tolist():
                if max(s, e) >= len(spans) or spans[s] is None or spans[e] is None:
                    continue
                if e < s or e - s + 1 > rows.settings["max_answer_length"]:
                    continue
                score = start[s] + end[e]
                if owner not in best or score > best[owner][0]:
                    best[owner] = (score, spans[s][0], spans[e][1])
    answers = {}
    for i, row in enumerate(rows.questions):
        _, begin, end = best.get(i, (0, 0, 0))
        answers[row["id"]] = row["context"][begin:end]
    return answers


def normalised(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def overlap_f1(answer, truth):
    common = sum((collections.Counter(answer) & collections.Counter(truth)).values())
    return 2 * common / (len(answer) + len(truth)) if common else 0.0


def squad_metrics(questions, answers):
    exact = f1 = 0.0
    for row in questions:
        answer = normalised(answers[row["id"]])
        truths = [normalised(a["text"]) for a in row["answers"]]
        exact += max(answer == truth for truth in truths)
        f1 += max(overlap_f1(answer.split(), truth.split()) for truth in truths)
    scale = 100 / len(questions)
    return {"exact_match": exact * scale, "f1": f1 * scale}


def accuracy(prediction):
    predicted = prediction.predictions.argmax(-1)
    return {"accuracy": float((predicted == prediction.label_ids).mean())}


def ranks(values):
    """Ranks from 1, equal values sharing their mean rank."""
    import numpy as np

    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[group]


def correlations(prediction):
    import numpy as np

    x, y = prediction.predictions.squeeze(-1).astype(float), prediction.label_ids.astype(float)
    return {
        "pearson": float(np.corrcoef(x, y)[0, 1]),
        "spearmanr": float(np.corrcoef(ranks(x), ranks(y))[0, 1]),
        "mse": float(((x - y) ** 2).mean()),
    }


def question_trainer():
    """A Trainer whose evaluate() turns logits into texts, as run_qa's does."""
    from transformers import Trainer

    class QuestionTrainer(Trainer):
        def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
            rows = eval_dataset or self.eval_dataset
            output = self.evaluation_loop(
                self.get_eval_dataloader(rows.features), description="Evaluation"
            )
            starts, ends = output.predictions
            answers = best_answers(rows, starts, ends)
            metrics = squad_metrics(rows.questions, answers)
            metrics = {f"{metric_key_prefix}_{k}": v for k, v in metrics.items()}
            metrics["eval_loss"] = output.metrics["eval_loss"]
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(
                self.args, self.state, self.control, metrics
            )
            return metrics

    return QuestionTrainer


def make_trainer(work, task, seed, model, scratch):
    """(trainer of the folder `model`, rows of the held-out part)"""
    from transformers import (
        AutoModelForMultipleChoice,
        AutoModelForQuestionAnswering,
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(model)
    settings = {**EVERY_TASK, **TASKS[task]["keys"]}
    kind = settings["task"]
    collator = DataCollatorWithPadding(tokenizer)
    make_rows, metrics, trainer_class, head = {
        "multiple_choice": (multiple_choice_rows, accuracy, Trainer, AutoModelForMultipleChoice),
        "sequence_classification": (
            pair_rows,
            correlations,
            Trainer,
            AutoModelForSequenceClassification,
        ),
        "question_answering": (
            QuestionRows,
            None,
            question_trainer(),
            AutoModelForQuestionAnswering,
        ),
    }[kind]
    if kind == "multiple_choice":
        collator = MultipleChoiceCollator(tokenizer)
    regression = dict(num_labels=1, problem_type="regression")
    only = regression if kind == "sequence_classification" else {}
    rows = {p: make_rows(tokenizer, settings, part_path(work, task, p)) for p in ("train", "valid")}
    trainer = trainer_class(
        model=head.from_pretrained(model, **only),
        args=TrainingArguments(
            output_dir=scratch,
            seed=seed,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **{k: v for k, v in settings.items() if k not in DATA_KEYS},
        ),
        train_dataset=rows["train"],
        eval_dataset=rows[TASKS[task]["judged_on"]],
        data_collator=collator,
        compute_metrics=metrics,
    )
    return trainer, rows["valid"]


def run_seed(work, task, seed):
    from transformers import set_seed

    set_seed(seed)
    with tempfile.TemporaryDirectory(prefix="japanese-peer-") as scratch:
        trainer, held_out_rows = make_trainer(work, task, seed, work / "encoder", scratch)
        wall, cpu = time.monotonic(), time.process_time()
        trainer.train()
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        log = list(trainer.state.log_history)
        curve = [{"step": r["step"], **metrics_of(r)} for r in log if "eval_loss" in r]
        if curve[-1]["step"] != trainer.state.global_step:
            curve.append({"step": trainer.state.global_step, **metrics_of(trainer.evaluate())})
        held_out = curve[-1]
        if TASKS[task]["judged_on"] != "valid":
            held_out = metrics_of(trainer.evaluate(held_out_rows))
    return {
        "task": task,
        "seed": seed,
        "train_rows": len(trainer.train_dataset),
        "held_out_rows": len(held_out_rows),
        "updates": trainer.state.global_step,
        "curve": curve,
        "held_out": held_out,
        "loss_curve": [{"step": r["step"], "loss": r["loss"]} for r in log if "loss" in r],
        "train_seconds": wall,
        "train_cpu_seconds": cpu,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def check(work, path):
    """Evaluates our models with transformers: 0 where the numbers are those of `path`."""
    worst = 0.0
    for run in json.loads(path.read_text())["runs"]:
        task, seed = run["task"], run["seed"]
        with tempfile.TemporaryDirectory(prefix="japanese-peer-") as scratch:
            model = work / "ours" / f"{task}-{seed}"
            trainer, held_out_rows = make_trainer(work, task, seed, model, scratch)
            pairs = [(run["curve"][-1], metrics_of(trainer.evaluate()))]
            if run["held_out"] != run["curve"][-1]:
                pairs.append((run["held_out"], metrics_of(trainer.evaluate(held_out_rows))))
        for ours, theirs in pairs:
            common = sorted(set(ours) & set(theirs))
            apart = max(abs(ours[k] - theirs[k]) for k in common)
            worst = max(worst, apart)
            print(f"{task}, seed {seed}: {', '.join(common)} agree to {apart:.1e}")
    return 0 if worst < 1e-4 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work_dir", required=True, help="the folder that japanese.py has made")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--check", type=Path, help="japanese.py's results: evaluate its models")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "japanese_peer.json")
    args = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    work = Path(args.work_dir)
    if args.check:
        return check(work, args.check)
    weights = encoder_hash(work)
    runs = []
    if args.output.is_file():
        known = json.loads(args.output.read_text())
        if known["encoder_sha256"] == weights:
            runs = known["runs"]
    for task in args.tasks:
        for seed in args.seeds:
            if any((r["task"], r["seed"]) == (task, seed) for r in runs):
                continue
            print(f"{task}, seed {seed} ...", file=sys.stderr)
            runs.append(run_seed(work, task, seed))
            runs.sort(key=lambda r: (list(TASKS).index(r["task"]), r["seed"]))
            result = {
                "threads": args.threads,
                "versions": {
                    "python": platform.python_version(),
                    "torch": torch.__version__,
                    "transformers": transformers.__version__,
                },
                "encoder_sha256": weights,
                "keys_of_every_task": EVERY_TASK,
                "keys": {name: about["keys"] for name, about in TASKS.items()},
                "runs": runs,
            }
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
