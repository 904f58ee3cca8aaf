# SPDX-License-Identifier: MIT
"""A real language model: the loss and the greedy tokens of SmolLM2-135M-Instruct are transformers'.

Skipped where FINETUNE_TEST_SMOLLM2 does not name the folder that scripts/make_smollm2.py made.
"""

import json
import os
import unittest
from pathlib import Path

import torch
from support import ParityTest, run_binary

MODEL = os.environ.get("FINETUNE_TEST_SMOLLM2")
TEXT = Path("/usr/share/common-licenses/GPL-3")  # of Debian's base-files
TOKENS = 1024
# Of the weights that the package holds, computed with transformers 5.23 in float32.
LOSS = 2.9600603


@unittest.skipUnless(MODEL and TEXT.exists(), "FINETUNE_TEST_SMOLLM2 names no model")
class SmolLm2(ParityTest):
    def setUp(self):
        super().setUp()
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(MODEL)
        self.ids = self.tokenizer(TEXT.read_text())["input_ids"][:TOKENS]

    def model(self):
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()

    def test_the_loss_of_a_text(self):
        data = self.folder / "text.jsonl"
        data.write_text(json.dumps({"text": TEXT.read_text()}) + "\n")
        config = {
            "task": "clm",
            "model_name_or_path": MODEL,
            "validation_file": str(data),
            "max_seq_length": TOKENS,
            "max_eval_samples": 1,
            "per_device_eval_batch_size": 1,
            "do_train": False,
            "do_eval": True,
            "output_dir": str(self.folder / "out"),
            "report_to": "none",
            "use_cpu": True,
        }
        path = self.folder / "eval.json"
        path.write_text(json.dumps(config))
        run_binary("train", path)
        ours = json.loads((self.folder / "out" / "eval_results.json").read_text())["eval_loss"]
        ids = torch.tensor([self.ids])
        with torch.no_grad():
            theirs = self.model()(ids, labels=ids).loss.item()
        self.assertAlmostEqual(theirs, LOSS, delta=1e-4)
        self.assertAlmostEqual(ours, LOSS, delta=1e-4)

    def test_greedy_tokens(self):
        for prompt in ("The capital of France is", "                    GNU GENERAL PUBLIC LICENSE"):
            said = run_binary("predict", MODEL, "--text", prompt, "--max_new_tokens", "64",
                              "--do_sample", "false")
            ids = self.tokenizer(prompt, return_tensors="pt")["input_ids"]
            with torch.no_grad():
                made = self.model().generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                                             max_new_tokens=64)
            text = self.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
            self.assertEqual(json.loads(said), [{"generated_text": prompt + text}])
