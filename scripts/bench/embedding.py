#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What embeddings cost: CPU seconds and peak memory, with sentence-transformers' in the same run.

    python3 scripts/bench/embedding.py MODEL_DIR PAIRS.jsonl

MODEL_DIR and PAIRS.jsonl as scripts/make_minilm.py makes them. Trains 256 pairs of 64 tokens an
update with MultipleNegativesRankingLoss, at once and 16 at a time, in turns with
sentence-transformers; each with few and with more updates, which takes the start off. Encodes 10,000
texts of the pairs. Ranks 50,000 documents of a few words for 5,000 queries, with vectors of 384 numbers of
a model of one layer, which costs little compared with the search. Needs the packages of tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAIRS, LENGTH, FEW, MORE, TEXTS = 256, 64, 1, 4, 10000
QUERIES, DOCUMENTS = 5000, 50000


def measured(command, **more):
    """CPU seconds and peak memory in MiB of a process and its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(said.decode(errors="replace")[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(args, folder, steps, rows):
    config = {
        "task": "embedding",
        "model_name_or_path": str(args.model),
        "train_file": str(args.pairs),
        "output_dir": str(folder / f"run-{rows}-{steps}"),
        "cache_dir": str(folder / "cache"),
        "overwrite_output_dir": True,
        "max_seq_length": LENGTH,
        "effective_batch_size": PAIRS,
        "per_device_train_batch_size": rows,
        "max_steps": steps,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
    }
    path = folder / "run.json"
    path.write_text(json.dumps(config))
    return measured([args.binary, "train", str(path), "--restart"])


def peer(args):
    """The command of a process: trains `--steps` updates, or encodes."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    rows = [json.loads(line) for line in args.pairs.read_text().splitlines()]
    columns = list(rows[0])[:2]
    model = SentenceTransformer(str(args.model), device="cpu")
    if args.steps == 0:
        model.encode(texts_of(args.pairs))
        return
    model.max_seq_length = LENGTH
    loss = losses.MultipleNegativesRankingLoss(model)
    if args.rows < PAIRS:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=args.rows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    model.train()
    for step in range(args.steps):
        batch = [rows[(step * PAIRS + i) % len(rows)] for i in range(PAIRS)]
        loss([model.preprocess([row[c] for row in batch]) for c in columns], None).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def texts_of(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [text for row in rows for text in list(row.values())[:2]]
    return [texts[i % len(texts)] for i in range(TEXTS)]


def encoding(args, folder):
    path = folder / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts_of(args.pairs)))
    return measured([args.binary, "predict", str(args.model), "--use_cpu", "--batch_size", "32",
                     "--input", str(path), "--output", str(folder / "vectors.jsonl")])  # fmt: skip


def write_corpus(folder, vocabulary):
    """A folder of BEIR: each query is the beginning of a document."""
    import random

    draw = random.Random(1)
    words = [token for token in vocabulary if token.isalpha() and token.islower() and len(token) > 3]
    documents = [" ".join(draw.choices(words, k=6)) for _ in range(DOCUMENTS)]
    (folder / "qrels").mkdir(parents=True)

    def write(name, texts):
        lines = [json.dumps({"_id": str(i), "text": text}) for i, text in enumerate(texts)]
        (folder / name).write_text("\n".join(lines) + "\n")

    write("corpus.jsonl", documents)
    write("queries.jsonl", [" ".join(text.split()[:3]) for text in documents[:QUERIES]])
    judged = "".join(f"{i}\t{i}\t1\n" for i in range(QUERIES))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)


def small_model(args, folder):
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoModel, AutoTokenizer, BertConfig

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=1, num_attention_heads=6,
                        intermediate_size=96)  # fmt: skip
    AutoModel.from_config(config).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    modules = [Transformer(str(folder / "plain"), max_seq_length=32), Pooling(384)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "small"))
    return tokenizer.get_vocab()


def search_peer(folder):
    """The command of a process: evaluates the small model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    def texts(name):
        rows = map(json.loads, (folder / "beir" / name).read_text().splitlines())
        return {row["_id"]: row["text"] for row in rows}

    queries = texts("queries.jsonl")
    evaluator = InformationRetrievalEvaluator(queries, texts("corpus.jsonl"), {key: {key} for key in queries})
    print(evaluator(SentenceTransformer(str(folder / "small"), device="cpu"))["cosine_ndcg@10"], file=sys.stderr)


def search_ours(args, folder):
    return measured([args.binary, "evaluate", "--task", "embedding", "--model_name_or_path", str(folder / "small"),
                     "--validation_file", str(folder / "beir"), "--per_device_eval_batch_size", "32",
                     "--max_seq_length", "32", "--output_dir", str(folder / "search"), "--use_cpu", "true",
                     "--cache_dir", str(folder / "cache")])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=PAIRS, help=argparse.SUPPRESS)
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=["training", "encoding", "search"], help="measure this alone")
    args = parser.parse_args()
    if args.search:
        return search_peer(args.search)
    if args.steps is not None:
        return peer(args)

    def theirs(steps, rows=PAIRS):
        return measured([sys.executable, __file__, str(args.model), str(args.pairs),
                         "--steps", str(steps), "--rows", str(rows)])  # fmt: skip

    print("| | CPU s | peak MiB | CPU s | peak MiB | ratios |\n|---|---|---|---|---|---|")

    def row(name, own, other):
        ratios = f"{own[0] / other[0]:.2f}, {own[1] / other[1]:.2f}"
        cells = " | ".join(f"{cpu:.1f} | {peak:.0f}" for cpu, peak in (own, other))
        print(f"| {name} | {cells} | {ratios} |", flush=True)

    def of_update(run):
        few, more = run(FEW), run(MORE)
        return (more[0] - few[0]) / (MORE - FEW), more[1]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (PAIRS, 16) if args.only in (None, "training") else ():
            own = of_update(lambda steps, rows=rows: ours(args, folder, steps, rows))
            other = of_update(lambda steps, rows=rows: theirs(steps, rows))
            row(f"an update of {PAIRS} pairs, {rows} at a time", own, other)
        if args.only in (None, "encoding"):
            row(f"{TEXTS} texts", encoding(args, folder), theirs(0))
        if args.only in (None, "search"):
            write_corpus(folder / "beir", small_model(args, folder))
            other = measured([sys.executable, __file__, str(args.model), str(args.pairs), "--search", str(folder)])
            row(f"{DOCUMENTS} documents ranked for {QUERIES} queries", search_ours(args, folder), other)


if __name__ == "__main__":
    main()
