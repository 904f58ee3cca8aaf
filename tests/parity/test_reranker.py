# SPDX-License-Identifier: MIT
"""task: reranker beside sentence-transformers' CrossEncoder: losses, weights, scores, metrics."""

import json

import torch
from support import ROOT, ParityTest, adam_steps, run_binary, weights

TASKS = ROOT / "tests" / "fixtures" / "parity" / "tasks"
FIXTURES = ROOT / "tests" / "fixtures" / "tasks"
STEPS, BATCH, RATE = 12, 8, 2e-4
# float32 sums in another order, over twelve steps of Adam.
LOSS, WEIGHT, SCORE, METRIC = 1e-4, 2e-3, 1e-5, 1e-4


def scored_pairs():
    rows = map(json.loads, (FIXTURES / "likeness-train.jsonl").read_text().splitlines())
    return [{"a": r["sentence1"], "b": r["sentence2"], "label": r["label"] / 5} for r in rows]


def lists():
    rows = map(json.loads, (FIXTURES / "choices-train.jsonl").read_text().splitlines())
    out = []
    for i, row in enumerate(rows):
        documents = [row[f"choice{c}"] for c in range(4)]
        labels = [2.0 if c == row["label"] else float((i + c) % 2) for c in range(4)]
        out.append({"query": row["question"], "documents": documents, "labels": labels})
    return out


def uneven_lists():
    """The same without some of the documents of some queries."""
    rows = lists()
    for i, row in enumerate(rows):
        kept = 4 - i % 3
        row["documents"], row["labels"] = row["documents"][:kept], row["labels"][:kept]
    return rows


def judged_sample(row):
    pairs = list(zip(row["documents"], row["labels"], strict=True))
    return {
        "query": row["query"],
        "positive": [text for text, label in pairs if label > 0],
        "negative": [text for text, label in pairs if label <= 0],
    }


def cross_encoder(folder):
    from sentence_transformers import CrossEncoder
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(
        TASKS / "bert" / "weather", num_labels=1, ignore_mismatched_sizes=True
    )
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(folder / "start")
    AutoTokenizer.from_pretrained(TASKS / "bert" / "tokenizer").save_pretrained(folder / "start")
    return CrossEncoder(str(folder / "start"), device="cpu", max_length=48)


def steps(model, loss, rows):
    def loss_of(batch):
        if "documents" in batch[0]:
            inputs = [[r["query"] for r in batch], [r["documents"] for r in batch]]
            labels = [torch.tensor(r["labels"]) for r in batch]
        else:
            inputs = [[r["a"] for r in batch], [r["b"] for r in batch]]
            labels = torch.tensor([r["label"] for r in batch])
        return loss(inputs, labels)

    return adam_steps(model, STEPS, BATCH, rows, RATE, loss_of)


# Losses of differences of scores: the gradient of the classifier's bias is zero, and Adam amplifies noise.
OF_DIFFERENCES = ("LambdaLoss", "RankNetLoss", "ListNetLoss", "ListMLELoss", "PListMLELoss")
BASE = {
    "task": "reranker",
    "per_device_train_batch_size": BATCH,
    "max_seq_length": 48,
    "max_steps": STEPS,
    "learning_rate": RATE,
    "eval_strategy": "steps",
    "eval_steps": STEPS,
}


class Reranker(ParityTest):
    def train_ours(self, rows, **keys):
        return self.train_rows(rows, **{**BASE, "validation_file": str(self.folder / "rows.jsonl"), **keys})

    def check(self, name, rows, **keys):
        from sentence_transformers.cross_encoder import losses

        model = cross_encoder(self.folder)
        theirs = steps(model, getattr(losses, name)(model), rows)
        run = self.train_ours(rows, loss_type=name, **keys)
        self.assert_same_losses(run, theirs, LOSS)
        expected = model.model.state_dict()
        if name in OF_DIFFERENCES:
            expected.pop("classifier.bias")
        self.assert_same_weights(weights(run), expected, WEIGHT)
        return run

    def check_scores(self, run, rows):
        from sentence_transformers import CrossEncoder

        model = CrossEncoder(str(run), device="cpu")
        firsts, seconds = [r["a"] for r in rows], [r["b"] for r in rows]
        theirs = model.predict(list(zip(firsts, seconds, strict=True)))
        command = ["predict", run, "--use_cpu", "--text", *firsts, "--text_pair", *seconds]
        for line, other in zip(run_binary(*command).splitlines(), theirs, strict=True):
            self.assertAlmostEqual(json.loads(line)["score"], float(other), delta=SCORE)
        model = CrossEncoder(str(run), device="cpu", max_length=48)  # as in our evaluation
        return model.predict(list(zip(firsts, seconds, strict=True)))

    def test_pairs(self):
        from scipy.stats import pearsonr, spearmanr

        rows = scored_pairs()
        run = self.check("BinaryCrossEntropyLoss", rows, gradient_accumulation_steps=2,
                         per_device_train_batch_size=BATCH // 2)  # fmt: skip
        theirs = self.check_scores(run, rows)
        results = json.loads((run / "eval_results.json").read_text())
        labels = [row["label"] for row in rows]
        for name, function in (("pearson", pearsonr), ("spearman", spearmanr)):
            value = function(labels, theirs)[0]
            self.assertAlmostEqual(results[f"eval_{name}"], value, delta=10 * METRIC, msg=name)

    def test_documents_of_other_samples_are_negatives(self):
        """Of as many samples as a batch has; each query is compared with the documents of all,
        which are all different: ours leaves out those that are equal to its own."""
        from sentence_transformers.cross_encoder import losses

        rows = [
            {"query": row["query"], "right": f"{number} {row['documents'][0]}",
             "wrong": f"{row['documents'][1]} {number}"}
            for number, row in enumerate(lists()[:BATCH])
        ]
        model = cross_encoder(self.folder)
        loss = losses.MultipleNegativesRankingLoss(model, num_negatives=None, scale=8)
        columns = ["query", "right", "wrong"]
        theirs = adam_steps(
            model, STEPS, BATCH, rows, RATE,
            lambda batch: loss([[row[name] for row in batch] for name in columns], None),
        )  # fmt: skip
        run = self.train_ours(
            rows,
            loss_type="MultipleNegativesRankingLoss",
            loss_kwargs={"num_negatives": None, "scale": 8},
            per_device_train_batch_size=BATCH // 4,
            gradient_accumulation_steps=4,
        )
        self.assert_same_losses(run, theirs, LOSS)
        self.assert_same_weights(weights(run), model.model.state_dict(), WEIGHT)

    def test_lists_of_unequal_length(self):
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

        judged = [row for row in uneven_lists() if max(row["labels"]) > 0 >= min(row["labels"])]
        self.assertEqual({len(row["labels"]) for row in judged}, {2, 3, 4})
        valid = self.folder / "valid.jsonl"
        valid.write_text("".join(json.dumps(row) + "\n" for row in judged))
        for name in ("LambdaLoss", "RankNetLoss", "ListNetLoss"):
            with self.subTest(name):
                output = str(self.folder / name)
                run = self.check(name, uneven_lists(), output_dir=output, validation_file=str(valid))
        evaluator = CrossEncoderRerankingEvaluator([judged_sample(row) for row in judged])
        theirs = evaluator(CrossEncoder(str(run), device="cpu", max_length=48))
        results = json.loads((run / "eval_results.json").read_text())
        for name in ("map", "mrr@10", "ndcg@10"):
            self.assertAlmostEqual(results[f"eval_{name}"], theirs[name], delta=METRIC, msg=name)

    def test_mean_squared_error(self):
        self.check("MSELoss", scored_pairs())

    def test_lists(self):
        for name in ("LambdaLoss", "RankNetLoss", "ListNetLoss"):
            with self.subTest(name):
                self.check(name, lists(), output_dir=str(self.folder / name))

    def test_metrics_of_lists(self):
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

        cross_encoder(self.folder)
        rows = lists()
        run = self.train_ours(rows)
        samples = [judged_sample(row) for row in rows]
        theirs = CrossEncoderRerankingEvaluator(samples)(CrossEncoder(str(run), device="cpu"))
        results = json.loads((run / "eval_results.json").read_text())
        for name in ("map", "mrr@10", "ndcg@10"):
            self.assertAlmostEqual(results[f"eval_{name}"], theirs[name], delta=METRIC, msg=name)
