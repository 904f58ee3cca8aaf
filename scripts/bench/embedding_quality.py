#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well embeddings find paragraphs after a training, beside sentence-transformers' trainer.

    python3 scripts/bench/embedding_quality.py MODEL_DIR [--seeds 1 2 3] [--pairs 1984]

MODEL_DIR as scripts/make_minilm.py makes it, with pairs-train.jsonl and pairs-valid.jsonl. Both train
an epoch of the first pairs with MultipleNegativesRankingLoss, 64 pairs an update of at most 64 tokens,
without duplicates in an update, once for each seed. sentence-transformers' evaluator ranks the
paragraphs of pairs-valid.jsonl for its questions with each model. Needs the packages of
tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BATCH, LENGTH, RATE = 64, 64, 5e-5


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def evaluator(path):
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    rows = rows_of(path)
    number = {text: str(i) for i, text in enumerate(dict.fromkeys(row["context"] for row in rows))}
    relevant = {}
    for row in rows:
        relevant.setdefault(row["question"], set()).add(number[row["context"]])
    return InformationRetrievalEvaluator(
        {text: text for text in relevant}, {key: text for text, key in number.items()}, relevant
    )


def ndcg(folder, judge):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = 256
    return judge(model)["cosine_ndcg@10"]


def train_ours(args, folder, data, seed):
    config = {
        "task": "embedding",
        "model_name_or_path": str(args.model),
        "train_file": str(data),
        "output_dir": str(folder / f"ours-{seed}"),
        "cache_dir": str(folder / "cache"),
        "max_seq_length": LENGTH,
        "batch_sampler": "no_duplicates",
        "effective_batch_size": BATCH,
        "per_device_train_batch_size": 16,
        "num_train_epochs": 1,
        "learning_rate": RATE,
        "warmup_steps": 0.1,
        "seed": seed,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
    }
    path = folder / "run.json"
    path.write_text(json.dumps(config))
    subprocess.run([args.binary, "train", str(path)], check=True, capture_output=True)
    return folder / f"ours-{seed}"


def train_theirs(args, folder, data, seed):
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(args.model), device="cpu")
    model.max_seq_length = LENGTH
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / f"theirs-{seed}"), num_train_epochs=1, per_device_train_batch_size=BATCH,
        learning_rate=RATE, warmup_ratio=0.1, seed=seed, batch_sampler="no_duplicates", save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows_of(data)),
        loss=MultipleNegativesRankingLoss(model),
    ).train()  # fmt: skip
    model.save(str(folder / f"theirs-{seed}"))
    return folder / f"theirs-{seed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--pairs", type=int, default=31 * BATCH)
    args = parser.parse_args()
    judge = evaluator(args.model / "pairs-valid.jsonl")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = folder / "pairs.jsonl"
        lines = (args.model / "pairs-train.jsonl").read_text().splitlines()[: args.pairs]
        data.write_text("\n".join(lines) + "\n")
        print("| NDCG@10 | " + " | ".join(f"seed {seed}" for seed in args.seeds) + " | mean |")
        print("|---|" + "---|" * (len(args.seeds) + 1))
        print(f"| before | {ndcg(args.model, judge):.4f} |" + " |" * len(args.seeds), flush=True)
        for name, train in (("finetune", train_ours), ("sentence-transformers", train_theirs)):
            values = [ndcg(train(args, folder, data, seed), judge) for seed in args.seeds]
            cells = " | ".join(f"{value:.4f}" for value in values)
            print(f"| {name} | {cells} | {statistics.mean(values):.4f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
