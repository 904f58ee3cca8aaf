# SPDX-License-Identifier: MIT
"""The model card of a finished model, read by Hugging Face's own library."""

import json
import os
import shutil
from pathlib import Path
from unittest import mock

from huggingface_hub import ModelCard
from support import MLM, ROOT, ParityTest

TASKS = ROOT / "tests" / "fixtures" / "tasks"


class ModelCardTest(ParityTest):
    def card(self, **keys):
        out = self.train({"max_steps": 2, "max_seq_length": 32}, **keys)
        card = ModelCard.load(out / "README.md")
        return card, json.loads((out / "eval_results.json").read_text())

    def assert_results(self, card, results, dataset):
        """model-index has every metric of the evaluation with its value."""
        (first, *_) = card.data.eval_results
        self.assertEqual(first.dataset_name, dataset)
        found = {result.metric_type: result.metric_value for result in card.data.eval_results}
        expected = {
            name.removeprefix("eval_"): value
            for name, value in results.items()
            if name.startswith("eval_")
            and not name.endswith(("_runtime", "_per_second", "_samples"))
        }
        self.assertEqual(found, expected)
        self.assertEqual(set(card.data.metrics or []), set(expected) - {"loss"})

    def test_masked_words_of_a_hub_model(self):
        # A model that the hub's cache has: the card names it, not the folder.
        hub = self.folder / "hub"
        snapshot = hub / "models--org--tiny" / "snapshots" / "0123abcd"
        shutil.copytree(MLM / "model", snapshot)
        refs = hub / "models--org--tiny" / "refs"
        refs.mkdir()
        (refs / "main").write_text("0123abcd")
        with mock.patch.dict(os.environ, {"HF_HUB_CACHE": str(hub)}):
            card, results = self.card(model_name_or_path="org/tiny", do_eval=True)
        self.assertEqual(card.data.library_name, "transformers")
        self.assertEqual(card.data.pipeline_tag, "fill-mask")
        self.assertEqual(card.data.base_model, "org/tiny")
        self.assertEqual(card.data.tags, ["finetune", "mlm"])
        self.assert_results(card, results, "eval.jsonl")
        for part in ("- training data: train.jsonl", "- learning rate: ", "- torch "):
            self.assertIn(part, card.text)
        # What the hub's own library would write back is the same metadata.
        again = ModelCard(str(card))
        self.assertEqual(again.data.to_dict(), card.data.to_dict())

    def test_names_that_are_not_plain_yaml(self):
        """Names of files and folders may hold characters that mean something in YAML."""
        rows = (TASKS / "weather-train.jsonl").read_text()
        data = self.folder / "a: \"b\" #c 'é.jsonl"
        data.write_text(rows)
        card, results = self.card(
            name="yes: [no] #1",
            task="sequence_classification",
            train_file=str(data),
            validation_file=str(data),
            do_eval=True,
        )
        self.assertEqual(card.data.pipeline_tag, "text-classification")
        self.assertIsNone(card.data.base_model)  # a folder of this machine
        self.assertEqual(card.data.model_name, "yes: [no] #1")
        self.assert_results(card, results, data.name)

    def test_a_run_without_an_evaluation(self):
        out = self.train({"max_steps": 2, "max_seq_length": 32}, do_eval=False)
        card = ModelCard.load(out / "README.md")
        self.assertIsNone(card.data.eval_results)
        self.assertFalse(Path(out / "eval_results.json").exists())

    def test_none_where_none_is_wanted(self):
        out = self.train({"max_steps": 2, "max_seq_length": 32}, model_card=False)
        self.assertFalse((out / "README.md").exists())
