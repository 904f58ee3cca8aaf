# SPDX-License-Identifier: MIT
"""Compares LoRA adapters with PEFT's: its files are ours, its models compute what ours do, and
transformers' Trainer continues a run of ours at the next step."""

import json
import os
import shutil
import subprocess

import torch
from safetensors.torch import load_file
from support import TEXT, ParityTest, run_binary, state
from test_clm import BLOCK, BOTH, STEPS, TOKENIZER, Samples, blocks_of, known_families

# float32 sums in another order, through ten steps of Adam.
WEIGHTS = 2e-3


class Adapter(ParityTest):
    def setUp(self):
        super().setUp()
        self.bases = {}
        for family, make in known_families().items():
            folder = self.folder / family
            make(folder, deviation=0.1)  # else all tokens are equally probable
            for file in TOKENIZER.iterdir():
                shutil.copy(file, folder)
            self.bases[family] = folder

    def configured(self, family, name, **more):
        config = {
            "task": "clm",
            "model_name_or_path": str(self.bases[family]),
            "train_file": str(TEXT / "lighthouse.txt"),
            "validation_file": str(TEXT / "lighthouse-valid.txt"),
            "block_size": BLOCK,
            "output_dir": str(self.folder / name),
            "cache_dir": str(self.folder / "cache"),
            **BOTH,
            "use_peft": True,
            "lora_r": 4,
            "lora_dropout": 0.0,
            "learning_rate": 1e-2,
            **more,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        return path

    def ours(self, family, name, **more):
        run_binary("train", self.configured(family, name, **more))
        return self.folder / name

    def peft_model(self, family, folder, is_trainable=False, dtype=torch.float32):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        base = AutoModelForCausalLM.from_pretrained(self.bases[family], dtype=dtype)
        return PeftModel.from_pretrained(base, folder, is_trainable=is_trainable)

    def mean_loss(self, model):
        model.eval()
        total = tokens = 0
        for block in blocks_of(TEXT / "lighthouse-valid.txt"):
            ids = torch.tensor([block])
            with torch.no_grad():
                logits = model(input_ids=ids).logits.float()
            total += float(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum"))
            tokens += ids.numel() - 1
        return total / tokens

    def check_family(self, family):
        from transformers import Trainer, TrainingArguments

        output = self.ours(family, f"ours-{family}")
        log = state(output)["log_history"]
        # The finished adapter, and what it starts from: the base.
        losses = [row["eval_loss"] for row in log if "eval_loss" in row]
        model = self.peft_model(family, output)
        self.assert_relative(self.mean_loss(model), losses[-1], 1e-4, family)
        self.assertLess(losses[-1], self.mean_loss(model.get_base_model().eval()) * 1.5)
        with model.disable_adapter():
            self.assertNotAlmostEqual(self.mean_loss(model), losses[-1], places=2)

        # Trainer resumes from our checkpoint: the order of its optimizer's states is ours.
        checkpoint = output / "checkpoint-10"
        settings = {**BOTH, "learning_rate": 1e-2, "disable_tqdm": True}
        trainer = Trainer(
            model=self.peft_model(family, checkpoint, is_trainable=True),
            args=TrainingArguments(output_dir=str(self.folder / f"theirs-{family}"), **settings),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        trainer._loss_shifts_labels = True
        trainer.train(resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(trainer.state.log_history, log, first_step=11)
        theirs = load_file(self.folder / f"theirs-{family}" / f"checkpoint-{STEPS}" / "adapter_model.safetensors")
        self.assert_same_weights(load_file(output / "adapter_model.safetensors"), theirs, WEIGHTS)

    def test_every_family_trains_and_resumes_as_peft_does(self):
        self.assertIn("llama", self.bases)
        for family in self.bases:
            with self.subTest(family):
                self.check_family(family)

    def test_adapter_config_is_as_peft_writes_it(self):
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        output = self.ours("llama", "ours", max_steps=2, save_steps=2, eval_strategy="no", use_rslora=True)
        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.bases["llama"]),
            LoraConfig(r=4, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear",
                       task_type="CAUSAL_LM", use_rslora=True),
        )
        model.save_pretrained(self.folder / "theirs")
        ours, theirs = (json.loads((folder / "adapter_config.json").read_text())
                        for folder in (output, self.folder / "theirs"))
        theirs["target_modules"] = sorted(theirs["target_modules"])  # PEFT writes a set
        self.assertEqual(ours, theirs)
        shapes = [{name: list(tensor.shape) for name, tensor in load_file(folder / "adapter_model.safetensors").items()}
                  for folder in (output, self.folder / "theirs")]
        self.assertEqual(*shapes)

    def test_a_run_of_trainer_with_peft_goes_on_here(self):
        """From step 10 ours takes the steps that theirs takes, also where their adapter is in bfloat16."""
        from peft import LoraConfig, get_peft_model
        from safetensors.torch import save_file
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.bases["llama"]),
            LoraConfig(r=4, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"),
        )
        theirs = self.folder / "theirs"
        trainer = Trainer(
            model=model,
            args=TrainingArguments(output_dir=str(theirs), **{**BOTH, "learning_rate": 1e-2}, disable_tqdm=True),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        trainer._loss_shifts_labels = True
        trainer.train()
        checkpoint = theirs / "checkpoint-10"
        self.assertFalse((checkpoint / "config.json").exists())
        output = self.ours("llama", "ours", resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(state(output)["log_history"], trainer.state.log_history, first_step=11)
        self.assert_same_weights(
            load_file(output / "adapter_model.safetensors"),
            load_file(theirs / f"checkpoint-{STEPS}" / "adapter_model.safetensors"), WEIGHTS)  # fmt: skip

        # In bfloat16 and stopped at once: the values are theirs.
        narrow = self.folder / "narrow" / "checkpoint-10"
        shutil.copytree(checkpoint, narrow)
        values = {name: value.bfloat16() for name, value in load_file(checkpoint / "adapter_model.safetensors").items()}
        save_file(values, narrow / "adapter_model.safetensors", metadata={"format": "pt"})
        output = self.ours("llama", "narrow-ours", resume_from_checkpoint=str(narrow), max_steps=10,
                           lr_scheduler_type="constant", eval_strategy="no")
        ours = load_file(output / "adapter_model.safetensors")
        for name, value in values.items():
            self.assertTrue(torch.equal(ours[name], value.float()), name)

        # Another scale would be another model.
        path = self.configured("llama", "other-alpha", lora_alpha=16, resume_from_checkpoint=str(checkpoint))
        refused = subprocess.run([os.environ["FINETUNE_BINARY"], "train", path], capture_output=True, text=True)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("write lora_alpha: 32", refused.stderr)

    def test_a_bfloat16_base_is_kept_as_it_is(self):
        from transformers import AutoModelForCausalLM

        folder = self.bases["llama"]
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
        output = self.ours("llama", "ours")
        loss = [row["eval_loss"] for row in state(output)["log_history"] if "eval_loss" in row][-1]
        self.assert_relative(self.mean_loss(self.peft_model("llama", output)), loss, 1e-4, "bfloat16 base")

    def test_predict_generates_as_peft_does(self):
        output = self.ours("llama", "ours")
        from transformers import AutoTokenizer

        text = "We lit the lamp"
        answer = json.loads(run_binary("predict", output, "--text", text, "--max_new_tokens", 12))
        tokenizer = AutoTokenizer.from_pretrained(output)
        ids = tokenizer(text, return_tensors="pt").input_ids
        generated = self.peft_model("llama", output).generate(input_ids=ids, max_new_tokens=12, do_sample=False)
        self.assertEqual(answer[0]["generated_text"], tokenizer.decode(generated[0], skip_special_tokens=True))


if __name__ == "__main__":
    import unittest

    unittest.main()
