# SPDX-License-Identifier: MIT
"""Compares BigBird's block-sparse attention with transformers' in evaluation: bigbird_compat."""

import json

import torch
from support import ParityTest, run_binary
from test_predict import LENGTH as SHORT
from test_predict import LINES, BigBird, find_answers, make_model
from transformers import pipeline

LENGTH = 128
BLOCKS = {"block_size": 4, "num_random_blocks": 1}  # full attention up to 28 tokens
TOLERANCE = 1e-4


class SparseBigBird(BigBird):
    more = {"max_position_embeddings": LENGTH, "attention_type": "block_sparse", **BLOCKS}

    @staticmethod
    def tokenizer():
        tokenizer = BigBird.tokenizer()
        tokenizer.model_max_length = LENGTH
        return tokenizer


class BlockSparse(ParityTest):
    def make(self, head, **config):
        path, model, tokenizer = make_model(self.folder, SparseBigBird, head, **config)
        ours = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**ours, "bigbird_compat": "huggingface"}))
        self.model = model
        return path, model, tokenizer

    def ask(self, path, *arguments, batch_size=1, rows=None):
        if rows is not None:
            file = self.folder / "rows.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            arguments = ("--input", file, *arguments)
        said = run_binary("predict", path, *arguments, "--use_cpu", "--batch_size", batch_size)
        return [json.loads(line) for line in said.decode().splitlines()]

    def assert_close(self, ours, theirs):
        self.assertEqual(len(ours), len(theirs))
        for mine, golden in zip(ours, theirs):
            self.assertAlmostEqual(mine, golden, delta=TOLERANCE * max(1, abs(golden)))

    def assert_sparse(self):
        """transformers switches to full attention for good at the first short batch."""
        self.assertEqual(self.model.base_model.attention_type, "block_sparse")

    def test_bigbird_fills_masks(self):
        path, model, tokenizer = self.make("ForMaskedLM")
        texts = [" ".join([*LINES[:n], f"a {tokenizer.mask_token} at sea"]) for n in (1, 2)]
        theirs = pipeline("fill-mask", model=model, tokenizer=tokenizer)(texts, top_k=5)
        self.assert_sparse()
        ours = self.ask(path, "--top_k", 5, "--text", *texts)
        for mine, golden in zip(ours, theirs):
            self.assertEqual([m["token"] for m in mine], [g["token"] for g in golden])
            self.assert_close([m["score"] for m in mine], [g["score"] for g in golden])

    def test_bigbird_classifies_padded_batches(self):
        labels = {"id2label": {0: "bad", 1: "so so", 2: "good"}}
        path, model, tokenizer = self.make("ForSequenceClassification", **labels)
        texts = [" ".join(LINES[:n]) for n in (3, 1, 2)]
        batch = tokenizer(
            texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        with torch.no_grad():
            logits = model(**batch).logits
        self.assert_sparse()
        options = ("--top_k", 3, "--function_to_apply", "none", "--text", *texts)
        ours = self.ask(path, *options, batch_size=3)
        for mine, golden in zip(ours, logits.tolist()):
            by_label = {m["label"]: m["score"] for m in mine}
            self.assert_close([by_label[x] for x in labels["id2label"].values()], golden)

    def test_bigbird_tags_tokens(self):
        path, model, tokenizer = self.make("ForTokenClassification", num_labels=4)
        texts = [" ".join(LINES[n : n + 2]) for n in (0, 4)]
        theirs = [
            pipeline("token-classification", model=model, tokenizer=tokenizer)(t) for t in texts
        ]
        self.assert_sparse()
        ours = self.ask(path, "--text", *texts)
        for mine, golden in zip(ours, theirs):
            self.assertEqual([m["entity"] for m in mine], [g["entity"] for g in golden])
            self.assert_close([m["score"] for m in mine], [float(g["score"]) for g in golden])

    def test_bigbird_chooses(self):
        path, model, tokenizer = self.make("ForMultipleChoice")
        row = {"question": " ".join(LINES[:2]), "choices": ["a lamp", LINES[3]]}
        batch = tokenizer([row["question"]] * 2, row["choices"], padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**{k: v[None] for k, v in batch.items()}).logits[0]
        self.assert_sparse()
        ours = self.ask(path, rows=[row], batch_size=2)[0]["scores"]
        self.assert_close(ours, logits.softmax(-1).tolist())

    def test_bigbird_answers_questions(self):
        path, model, tokenizer = self.make("ForQuestionAnswering")
        row = {"question": "Who lit the lamp?", "context": " ".join(LINES[:2])}
        tokenizer.model_max_length = SHORT  # windows of find_answers; the last may be short
        tokenizer.save_pretrained(path)
        theirs = find_answers(model, tokenizer, row, False, 24, 6, 3)
        options = ("--doc_stride", 24, "--max_answer_len", 6, "--top_k", 3)
        ours = self.ask(path, *options, rows=[row])[0]
        self.assertEqual([m["answer"] for m in ours], [g["answer"] for g in theirs])
        self.assert_close([m["score"] for m in ours], [g["score"] for g in theirs])
