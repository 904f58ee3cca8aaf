#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Small ModernBERT and DeBERTa-v2 models on JSTS and JCommonsenseQA, beside transformers' Trainer:
the same random weights, vocabulary, rows in the same order, settings and seed, no dropout. The loss
of every update and the metric after the last one are compared.

    encoders.py --data FOLDER [--binary build/finetune] [--steps 120] [--rows 300]

FOLDER holds jsts-{train,valid}.jsonl, jcommonsenseqa-{train,valid}.jsonl and japanese.txt. --rows
are those of the validation file. Writes results/encoders.json. Exits 1 where a loss differs by more
than 1e-3, relative, or a metric by more than 4e-3 (one of 300 rows). Needs tests/requirements.txt.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
LOSS, METRIC = 1e-3, 4e-3
SIZES = dict(
    num_hidden_layers=4,
    hidden_size=128,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=128,
    initializer_range=0.05,
)
FAMILIES = {
    "modernbert": ("ModernBert", dict(local_attention=32)),
    "deberta-v2": (
        "DebertaV2",
        dict(
            type_vocab_size=0,
            relative_attention=True,
            position_buckets=16,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
    ),
}
TRAINING = dict(
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    learning_rate=5e-4,
    warmup_steps=5,
    weight_decay=0.01,
    logging_steps=1,
    train_sampling_strategy="sequential",
    seed=1,
)
TASKS = {
    "jsts": dict(
        head="SequenceClassification",
        metric="pearson",
        keys=dict(
            task="sequence_classification",
            text_column="sentence1",
            text_pair_column="sentence2",
            label_column="label",
            max_seq_length=96,
        ),
        settings=dict(num_labels=1),
    ),
    "jcommonsenseqa": dict(
        head="MultipleChoice",
        metric="accuracy",
        keys=dict(
            task="multiple_choice",
            context_column="question",
            choice_columns=[f"choice{i}" for i in range(5)],
            label_column="label",
            max_seq_length=96,
        ),
        settings={},
    ),
}


def make_tokenizer(family, text, folder):
    """A vocabulary of the family's kind, trained on `text`."""
    import make_task_goldens as goldens

    goldens.VOCAB_SIZE = 4000
    goldens.texts = lambda: iter(text.read_text().splitlines())
    return goldens.make_tokenizer(family, folder)


def features_of(task, tokenizer, rows):
    most = TASKS[task]["keys"]["max_seq_length"]
    encode = lambda a, b: dict(tokenizer(a, b, truncation=True, max_length=most))
    if task == "jsts":
        return [
            {**encode(r["sentence1"], r["sentence2"]), "label": float(r["label"])} for r in rows
        ]
    return [
        {
            "choices": [encode(r["question"], r[f"choice{i}"]) for i in range(5)],
            "label": int(r["label"]),
        }
        for r in rows
    ]


def collate_with(tokenizer):
    import torch
    import transformers

    pad = transformers.DataCollatorWithPadding(tokenizer)

    def collate(features):
        if "choices" not in features[0]:
            return pad(features)
        batch = tokenizer.pad(
            [c for f in features for c in f["choices"]], padding=True, return_tensors="pt"
        )
        batch = {k: v.view(len(features), 5, -1) for k, v in batch.items()}
        return {**batch, "labels": torch.tensor([f["label"] for f in features])}

    return collate


def metric_of(task):
    import numpy

    def pearson(prediction):
        both = numpy.corrcoef(prediction.predictions.ravel(), prediction.label_ids.ravel())
        return {"pearson": float(both[0, 1])}

    def accuracy(prediction):
        return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}

    return pearson if task == "jsts" else accuracy


def outcome_of(task, log):
    """Losses of the updates, and the metric after the last one."""
    last = [row for row in log if "eval_loss" in row][-1]
    return [float(row["loss"]) for row in log if "loss" in row], last[f"eval_{TASKS[task]['metric']}"]


def train_theirs(task, model, tokenizer, files, steps, scratch):
    from transformers import Trainer, TrainingArguments

    rows = {name: [json.loads(x) for x in path.read_text().splitlines()] for name, path in files.items()}
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(scratch / "theirs"), optim="adamw_torch", report_to="none", disable_tqdm=True,
            use_cpu=True, remove_unused_columns=False, save_strategy="no", eval_strategy="steps",
            eval_steps=steps, max_steps=steps, **TRAINING,
        ),
        train_dataset=features_of(task, tokenizer, rows["train"]),
        eval_dataset=features_of(task, tokenizer, rows["valid"]),
        data_collator=collate_with(tokenizer),
        compute_metrics=metric_of(task),
    )  # fmt: skip
    begin = time.process_time()
    trainer.train()
    return *outcome_of(task, trainer.state.log_history), time.process_time() - begin


def train_ours(binary, task, model, tokenizer, files, steps, scratch):
    keys = {
        **TRAINING,
        **TASKS[task]["keys"],
        "model_name_or_path": str(model),
        "tokenizer_name": str(tokenizer),
        "train_file": str(files["train"]),
        "validation_file": str(files["valid"]),
        "output_dir": str(scratch / "ours"),
        "max_steps": steps,
        "eval_strategy": "steps",
        "eval_steps": steps,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
    }
    config = scratch / "run.json"
    config.write_text(json.dumps(keys, indent=1))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([binary, "train", config], stderr=subprocess.PIPE, env=environment)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    state = json.loads((scratch / "ours" / "trainer_state.json").read_text())
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return *outcome_of(task, state["log_history"]), seconds


def write_rows(task, args, scratch):
    counts = {"train": args.steps * TRAINING["per_device_train_batch_size"], "valid": args.rows}
    files = {}
    for name, count in counts.items():
        lines = (args.data / f"{task}-{name}.jsonl").read_text().splitlines()[:count]
        files[name] = scratch / f"{name}.jsonl"
        files[name].write_text("".join(line + "\n" for line in lines))
    return files


def compare(family, task, args, scratch):
    import torch
    import transformers

    prefix, own = FAMILIES[family]
    tokenizer_folder = scratch / "tokenizer"
    tokenizer = make_tokenizer(family, args.data / "japanese.txt", tokenizer_folder)
    ids = {f"{n}_token_id": getattr(tokenizer, f"{n}_token_id") for n in ("pad", "cls", "sep")}
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=len(tokenizer), **SIZES, **own, **TASKS[task]["settings"], **ids,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    torch.manual_seed(1)
    model = getattr(transformers, f"{prefix}For{TASKS[task]['head']}")(config)
    model.save_pretrained(scratch / "model")
    files = write_rows(task, args, scratch)
    theirs, their_metric, their_seconds = train_theirs(
        task, model, tokenizer, files, args.steps, scratch
    )
    ours, our_metric, our_seconds = train_ours(
        args.binary, task, scratch / "model", tokenizer_folder, files, args.steps, scratch
    )
    worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(ours, theirs, strict=True))
    metric = TASKS[task]["metric"]
    return {
        "model": family,
        "task": task,
        "updates": len(ours),
        "first_loss": round(ours[0], 4),
        "mean_of_last_ten_losses": round(sum(ours[-10:]) / 10, 4),
        "largest_relative_difference": float(f"{worst:.2g}"),
        metric: round(our_metric, 4),
        f"{metric}_of_transformers": round(their_metric, 4),
        "cpu_seconds": round(our_seconds, 1),
        "cpu_seconds_of_transformers": round(their_seconds, 1),
    }


def differs(row):
    metric = TASKS[row["task"]]["metric"]
    return (
        row["largest_relative_difference"] > LOSS
        or abs(row[metric] - row[f"{metric}_of_transformers"]) > METRIC
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "encoders.json")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    results = []
    for family in FAMILIES:
        for task in TASKS:
            with tempfile.TemporaryDirectory() as scratch:
                results.append(compare(family, task, args, Path(scratch)))
            print(json.dumps(results[-1]), flush=True)
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(any(map(differs, results)))


if __name__ == "__main__":
    main()
