# SPDX-License-Identifier: MIT
"""An update of packed rows has the loss and gradients that transformers computes from the separate
samples: no sample attends to its neighbours, and positions start from 0."""

import json
import shutil

import test_clm
import test_models
import torch
from support import MLM, ParityTest, state
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM


def draw_samples(count, vocabulary, longest):
    """Returns rows of input_ids and labels of 3 to `longest` tokens, every fifth labelled."""
    generator = torch.Generator().manual_seed(3)
    samples = []
    for number in range(count):
        length = 3 + number * number * 7 % (longest - 2)
        ids = torch.randint(5, vocabulary, (length,), generator=generator)
        labels = torch.where(torch.arange(length) % 5 == 1, ids.flip(0), -100)
        samples.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
    return samples


class Packing(ParityTest):
    def test_a_packed_update_equals_transformers_samples_one_by_one(self):
        self.check(MLM / "model")

    def test_windows_end_with_a_sample(self):
        test_models.make_model("modernbert", self.folder / "made")
        self.check(self.folder / "made")

    def test_distances_end_with_a_sample(self):
        test_models.make_model("deberta-v2", self.folder / "made")
        self.check(self.folder / "made")

    def check(self, path):
        model = AutoModelForMaskedLM.from_pretrained(path).eval()
        samples = draw_samples(40, model.config.vocab_size, 24)
        data = self.folder / "samples.jsonl"
        data.write_text("".join(json.dumps(sample) + "\n" for sample in samples))

        targets = sum(label != -100 for sample in samples for label in sample["labels"])
        loss = 0.0
        for sample in samples:
            logits = model(torch.tensor([sample["input_ids"]])).logits[0]
            labels = torch.tensor(sample["labels"])
            share = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / targets
            share.backward()
            loss += share.item()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()

        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        folder = self.folder / "model"
        model.config.update(dropout)
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((MLM / "model" / name).read_bytes())
        for rows, accumulation in ((64, 1), (4, 16)):
            run = self.train(
                {
                    "model_name_or_path": str(folder),
                    "train_file": str(data),
                    "packing": True,
                    "max_seq_length": 32,
                    "per_device_train_batch_size": rows,
                    "gradient_accumulation_steps": accumulation,
                    "max_steps": 1,
                    "logging_steps": 1,
                    "eval_strategy": "no",
                },
                f"run-{rows}",
            )
            entry = next(e for e in state(run)["log_history"] if "grad_norm" in e)
            self.assert_relative(entry["loss"], loss, 1e-5, "loss")
            self.assert_relative(entry["grad_norm"], norm, 1e-4, "grad_norm")


class CausalPacking(ParityTest):
    """Rotations, windows, caps and learned positions of samples that share a row."""

    def test_a_packed_update_equals_transformers_samples_one_by_one(self):
        for family in ("llama", "mistral", "gemma2", "gpt2", "smollm3"):
            with self.subTest(family):
                self.check(family)

    def check(self, family):
        folder = self.folder / family
        test_clm.FAMILIES[family](folder, deviation=0.2)
        for file in test_clm.TOKENIZER.iterdir():
            shutil.copy(file, folder)
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
        rows = [row["input_ids"] for row in draw_samples(40, model.config.vocab_size, 24)]
        data = self.folder / "causal.jsonl"
        data.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))

        targets = sum(len(row) - 1 for row in rows)
        loss = 0.0
        for row in rows:
            ids = torch.tensor([row])
            logits = model(ids).logits[0, :-1]
            share = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum") / targets
            share.backward()
            loss += share.item()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()

        run = self.train(
            {
                "task": "clm",
                "model_name_or_path": str(folder),
                "train_file": str(data),
                "validation_file": str(data),
                "packing": True,
                "max_seq_length": 32,
                "per_device_train_batch_size": 4,
                "gradient_accumulation_steps": 16,
                "max_steps": 1,
                "logging_steps": 1,
                "eval_strategy": "no",
            },
            f"run-{family}",
        )
        entry = next(e for e in state(run)["log_history"] if "grad_norm" in e)
        self.assertEqual(entry["num_tokens"], sum(map(len, rows)))
        self.assert_relative(entry["loss"], loss, 1e-5, "loss")
        self.assert_relative(entry["grad_norm"], norm, 1e-4, "grad_norm")
