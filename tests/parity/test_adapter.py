# SPDX-License-Identifier: MIT
"""Compares LoRA adapters with PEFT's: its files are ours, its models compute what ours do, and
transformers' Trainer continues a run of ours at the next step."""

import json
import shutil

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

    def ours(self, family, name, **more):
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
        run_binary("train", path)
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

    # Keys here, and what they are for PEFT's LoraConfig.
    OPTIONS = {
        "exclude": ({"lora_exclude_modules": ["up_proj", "self_attn.o_proj"]},
                    {"exclude_modules": ["up_proj", "self_attn.o_proj"]}),
        "layers": ({"lora_target_modules": ["q_proj", "mlp.down_proj"], "lora_layers_to_transform": [1]},
                   {"target_modules": ["q_proj", "mlp.down_proj"], "layers_to_transform": [1]}),
        "pattern": ({"lora_target_modules": [r".*layers\.1\..*(q|v)_proj"]},
                    {"target_modules": r".*layers\.1\..*(q|v)_proj"}),
        "ranks": ({"lora_rank_pattern": {"q_proj": 2, "1.mlp.(up|down)_proj": 3}, "lora_alpha_pattern": {"v_proj": 7}},
                  {"rank_pattern": {"q_proj": 2, "1.mlp.(up|down)_proj": 3}, "alpha_pattern": {"v_proj": 7}}),
        "rslora": ({"use_rslora": True}, {"use_rslora": True}),
        "dora": ({"use_dora": True}, {"use_dora": True}),
        "bias": ({"lora_target_modules": ["q_proj", "o_proj"], "lora_bias": "all"},
                 {"target_modules": ["q_proj", "o_proj"], "bias": "all"}),
        "own biases": ({"lora_target_modules": ["q_proj", "o_proj"], "lora_bias": "lora_only"},
                       {"target_modules": ["q_proj", "o_proj"], "bias": "lora_only"}),
        "whole": ({"lora_modules_to_save": ["lm_head", "input_layernorm"]},
                  {"modules_to_save": ["lm_head", "input_layernorm"]}),
        "tied": ({"lora_modules_to_save": ["embed_tokens"], "lora_ensure_weight_tying": True},
                 {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
        "lora+": ({"loraplus_lr_ratio": 4, "weight_decay": 0.1}, {}),
    }

    def with_options(self, family, keys, options):
        """Trains with the keys, then lets Trainer go on from our checkpoint-10 with PEFT's options."""
        from peft import LoraConfig, get_peft_model
        from peft.optimizers import create_loraplus_optimizer
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        name = f"ours-{family}"
        output = self.ours(family, name, **keys)
        log = state(output)["log_history"]
        fresh = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.bases[family]),
            LoraConfig(**{"r": 4, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear",
                          "task_type": "CAUSAL_LM", **options}),
        )
        fresh.save_pretrained(self.folder / "theirs")
        shapes = [{name: list(tensor.shape) for name, tensor in load_file(folder / "adapter_model.safetensors").items()}
                  for folder in (output, self.folder / "theirs")]
        self.assertEqual(*shapes)

        model = self.peft_model(family, output)
        losses = [row["eval_loss"] for row in log if "eval_loss" in row]
        self.assert_relative(self.mean_loss(model), losses[-1], 1e-4, "loss of our adapter")

        checkpoint = output / "checkpoint-10"
        settings = {**BOTH, "learning_rate": 1e-2, "disable_tqdm": True, "weight_decay": keys.get("weight_decay", 0.0)}
        model = self.peft_model(family, checkpoint, is_trainable=True)
        optimizer = None
        if "loraplus_lr_ratio" in keys:
            optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-2, loraplus_lr_ratio=4,
                                                  loraplus_weight_decay=0.1)
        trainer = Trainer(
            model=model,
            args=TrainingArguments(output_dir=str(self.folder / "trained"), **settings),
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
            optimizers=(optimizer, None),
        )
        trainer._loss_shifts_labels = True
        trainer.train(resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(trainer.state.log_history, log, first_step=11)
        theirs = load_file(self.folder / "trained" / f"checkpoint-{STEPS}" / "adapter_model.safetensors")
        self.assert_same_weights(load_file(output / "adapter_model.safetensors"), theirs, WEIGHTS)

    def test_options_are_those_of_peft(self):
        for name, (keys, options) in self.OPTIONS.items():
            # qwen2 has biases; smollm3 ties its embeddings.
            family = "smollm3" if name == "tied" else "qwen2" if "bias" in name else "llama"
            with self.subTest(name):
                self.with_options(family, keys, options)
                for folder in (f"ours-{family}", "theirs", "trained"):
                    shutil.rmtree(self.folder / folder, ignore_errors=True)

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
