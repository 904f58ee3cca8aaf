# SPDX-License-Identifier: MIT
"""Compares LoRA adapters with PEFT's: its files are ours, its models compute what ours do, and
transformers' Trainer continues a run of ours at the next step."""

import json
import shutil

import make_task_goldens
import torch
import transformers
from safetensors.torch import load_file
from support import TEXT, ParityTest, run_binary, run_for_code, state
from test_clm import BLOCK, BOTH, STEPS, Samples, blocks_of, families_of, known_families, make_base, mean_loss
from test_tasks import GOLDENS, TASKS, write_config

# float32 sums in another order, through ten steps of Adam.
WEIGHTS = 2e-3


class Adapter(ParityTest):
    def setUp(self):
        super().setUp()
        self.bases = {family: make_base(family, self.folder / family) for family in known_families()}

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

    def check_family(self, family, **own):
        from transformers import Trainer, TrainingArguments

        if family == "gemma3n_text":  # in training, transformers leaves out an adapter of this layer
            own = {"lora_exclude_modules": ["correction_coefs"]}
        output = self.ours(family, f"ours-{family}", **own)
        log = state(output)["log_history"]
        # The finished adapter, and what it starts from: the base.
        losses = [row["eval_loss"] for row in log if "eval_loss" in row]
        model = self.peft_model(family, output)
        self.assert_relative(mean_loss(model), losses[-1], 1e-4, family)
        self.assertLess(losses[-1], mean_loss(model.get_base_model().eval()) * 1.5)
        with model.disable_adapter():
            self.assertNotAlmostEqual(mean_loss(model), losses[-1], places=2)

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
        for family in families_of(self.bases):
            with self.subTest(family):
                self.check_family(family)

    EXPERTS = {
        "both": {"lora_target_modules": ["q_proj"],
                 "lora_target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
        "one, alone, of another rank": {"lora_target_modules": [], "lora_target_parameters": ["experts.down_proj"],
                                        "lora_rank_pattern": {"experts.down_proj": 3}},
    }

    def test_experts_train_and_resume_as_peft_does(self):
        for family in families_of([name for name in ("gpt_oss", "granitemoe", "qwen3_moe", "olmoe") if name in self.bases]):
            for what, own in self.EXPERTS.items():
                with self.subTest(f"{family}: {what}"):
                    shutil.rmtree(self.folder / f"ours-{family}", ignore_errors=True)
                    shutil.rmtree(self.folder / f"theirs-{family}", ignore_errors=True)
                    self.check_family(family, **own)

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
        "embedding": ({"lora_target_modules": ["embed_tokens", "q_proj"], "use_rslora": True,
                       "lora_rank_pattern": {"embed_tokens": 3}},
                      {"target_modules": ["embed_tokens", "q_proj"], "use_rslora": True,
                       "rank_pattern": {"embed_tokens": 3}}),
        "untied embedding": ({"lora_target_modules": ["model.embed_tokens", "q_proj"]},
                             {"target_modules": ["model.embed_tokens", "q_proj"]}),
        "scaled embedding": ({"lora_target_modules": ["embed_tokens", "q_proj"]},
                             {"target_modules": ["embed_tokens", "q_proj"]}),
        "positions": ({"lora_target_modules": ["wte", "wpe", "c_attn"]}, {"target_modules": ["wte", "wpe", "c_attn"]}),
        "lora+ embedding": ({"lora_target_modules": ["embed_tokens", "q_proj"], "loraplus_lr_ratio": 4,
                             "loraplus_lr_embedding": 3e-3, "weight_decay": 0.1},
                            {"target_modules": ["embed_tokens", "q_proj"]}),
    }

    def with_options(self, family, keys, options):
        """Trains with the keys, then lets Trainer continue from our checkpoint-10 with PEFT's options."""
        from peft import LoraConfig, get_peft_model
        from peft.optimizers import create_loraplus_optimizer
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

        output = self.ours(family, "with-options", **keys)
        log = state(output)["log_history"]
        fresh = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.bases[family]),
            LoraConfig(**{"r": 4, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear",
                          "task_type": "CAUSAL_LM", **options}),
        )
        fresh.save_pretrained(self.folder / "theirs")
        copy = "embed_tokens.base_layer.weight"  # of the base's table, which PEFT does not need
        shapes = [{name: list(tensor.shape) for name, tensor in load_file(folder / "adapter_model.safetensors").items()
                   if not name.endswith(copy)} for folder in (output, self.folder / "theirs")]
        self.assertEqual(*shapes)

        model = self.peft_model(family, output)
        losses = [row["eval_loss"] for row in log if "eval_loss" in row]
        self.assert_relative(mean_loss(model), losses[-1], 1e-4, "loss of our adapter")

        checkpoint = output / "checkpoint-10"
        settings = {**BOTH, "learning_rate": 1e-2, "disable_tqdm": True, "weight_decay": keys.get("weight_decay", 0.0)}
        model = self.peft_model(family, checkpoint, is_trainable=True)
        optimizer = None
        if "loraplus_lr_ratio" in keys:
            optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-2, loraplus_lr_ratio=4,
                                                  loraplus_weight_decay=0.1,
                                                  loraplus_lr_embedding=keys.get("loraplus_lr_embedding", 1e-6))
            # Trainer takes the rates of the groups from our checkpoint.
            groups = torch.load(checkpoint / "optimizer.pt", weights_only=True)["param_groups"]
            self.assertEqual(len(groups), len(optimizer.param_groups))
            for ours, theirs in zip(groups, optimizer.param_groups):
                self.assertAlmostEqual(ours["initial_lr"], theirs["lr"], places=12)
                self.assertEqual(ours["weight_decay"], theirs["weight_decay"])
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
            # qwen2 has biases; the llama of these tests has one weight for embedding and output.
            family = {"whole": "mistral", "untied embedding": "mistral", "positions": "gpt2",
                      "scaled embedding": "gemma2"}.get(name, "qwen2" if "bias" in name else "llama")
            for folder in ("with-options", "theirs", "trained"):
                shutil.rmtree(self.folder / folder, ignore_errors=True)
            with self.subTest(name):
                self.with_options(family, keys, options)

    def test_an_adapter_with_a_copy_of_the_bases_table_is_read(self):
        """PEFT saves the table with the adapter of embed_tokens; another table is another base."""
        from peft import LoraConfig, get_peft_model
        from safetensors.torch import save_file
        from transformers import AutoModelForCausalLM

        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.bases["llama"]),
            LoraConfig(r=4, lora_alpha=32, target_modules=["embed_tokens", "q_proj"], task_type="CAUSAL_LM"),
        )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_embedding_A" in name:
                    parameter.normal_(0.0, 0.1)
        theirs = self.folder / "theirs"
        model.save_pretrained(theirs)
        file = theirs / "adapter_model.safetensors"
        tensors = load_file(file)
        table = "base_model.model.model.embed_tokens.base_layer.weight"
        self.assertIn(table, tensors)
        keys = {"adapter_name_or_path": str(theirs), "eval_on_start": True, "max_steps": 1, "lora_r": None,
                "lora_dropout": None}
        path = self.configured("llama", "ours", **keys)
        config = {key: value for key, value in json.loads(path.read_text()).items() if value is not None}
        path.write_text(json.dumps(config))
        run_binary("train", path)
        output = self.folder / "ours"
        losses = [row["eval_loss"] for row in state(output)["log_history"] if "eval_loss" in row]
        self.assert_relative(mean_loss(model), losses[0], 1e-4, "loss of their adapter")

        save_file({**tensors, table: tensors[table] + 1.0}, file, metadata={"format": "pt"})
        shutil.rmtree(output)
        refused = run_for_code("train", path)
        self.assertEqual(refused.returncode, 1, refused.stderr)
        self.assertIn("'model.embed_tokens.weight' differs from the base's", refused.stderr)

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
        refused = run_for_code("train", path)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("write lora_alpha: 32", refused.stderr)

    def test_a_base_of_16_bits_is_kept_as_it_is(self):
        from transformers import AutoModelForCausalLM

        folder = self.bases["llama"]
        for dtype in (torch.bfloat16, torch.float16):
            AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).save_pretrained(folder)
            output = self.ours("llama", f"ours-{dtype}")
            loss = [row["eval_loss"] for row in state(output)["log_history"] if "eval_loss" in row][-1]
            self.assert_relative(mean_loss(self.peft_model("llama", output)), loss, 1e-4, f"base in {dtype}")

    def test_predict_generates_as_peft_does(self):
        from transformers import AutoTokenizer

        text = "We lit the lamp"
        for dora in (False, True):
            output = self.ours("llama", f"ours-{dora}", use_dora=dora)
            answer = json.loads(run_binary("predict", output, "--text", text, "--max_new_tokens", 12))
            tokenizer = AutoTokenizer.from_pretrained(output)
            ids = tokenizer(text, return_tensors="pt").input_ids
            model = self.peft_model("llama", output)
            generated = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False)
            self.assertEqual(answer[0]["generated_text"], tokenizer.decode(generated[0], skip_special_tokens=True))


class TaskAdapter(ParityTest):
    """Adapters of models with a head, on complete tiny models of each family; one test each, added below."""

    KINDS = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS", "QuestionAnswering": "QUESTION_ANS"}
    # A softmax ignores a constant added to all scores: no true gradient, so Adam makes them noise.
    NOISE = {"choices": ("classifier.bias",), "cargo": ("qa_outputs.bias", "classifier.bias")}

    def base(self, name):
        work = make_task_goldens.WORKS[name.split("/")[1]]
        return getattr(transformers, f"AutoModelFor{work.head}").from_pretrained(TASKS / name)

    def settings(self, name):
        config = GOLDENS[name]["config"]
        return {"save_strategy": "steps", "save_steps": config["eval_steps"], "learning_rate": 1e-2}

    def ours(self, name, **more):
        path = write_config(self.folder, name, use_peft=True, lora_r=4, lora_dropout=0.0,
                            **{**self.settings(name), **more})
        run_binary("train", path)
        return self.folder / "run"

    def trainer(self, name, model, output):
        family, work = name.split("/")
        plain = make_task_goldens.make_trainer(family, work, output, **self.settings(name))
        return transformers.Trainer(model=model, args=plain.args, train_dataset=plain.train_dataset,
                                    eval_dataset=plain.eval_dataset, data_collator=plain.data_collator)

    def check_files(self, name, output, targets):
        """The files are those of a new adapter that PEFT saves."""
        from peft import LoraConfig, get_peft_model

        ours = json.loads((output / "adapter_config.json").read_text())
        work = make_task_goldens.WORKS[name.split("/")[1]]
        kind = self.KINDS.get(work.head)
        # For the tasks of tokens, PEFT's all-linear takes the output layer, which it then cannot save whole.
        listed = kind in ("TOKEN_CLS", "QUESTION_ANS") or targets != "all-linear"
        target = ours["target_modules"] if listed else "all-linear"
        saved = {"MultipleChoice": ["classifier"], "QuestionAnswering": None}.get(work.head)
        if name.startswith("modernbert/cargo"):
            saved = ["classifier"]
        model = get_peft_model(self.base(name), LoraConfig(
            r=4, lora_alpha=32, lora_dropout=0.0, target_modules=target, modules_to_save=saved, task_type=kind))
        model.save_pretrained(self.folder / "new")
        theirs = json.loads((self.folder / "new" / "adapter_config.json").read_text())
        # PEFT lists layers of the head that it then saves whole, too.
        whole = tuple(theirs["modules_to_save"] or ())
        theirs["target_modules"] = sorted(n for n in theirs["target_modules"] if n.split(".")[0] not in whole)
        theirs["base_model_name_or_path"] = ours["base_model_name_or_path"]
        self.assertEqual(ours, theirs)
        shapes = [{key: list(tensor.shape) for key, tensor in load_file(folder / "adapter_model.safetensors").items()}
                  for folder in (output, self.folder / "new")]
        self.assertEqual(*shapes)

    def check(self, name, **keys):
        from peft import PeftModel

        output = self.ours(name, **keys)
        self.check_files(name, output, keys.get("lora_target_modules", "all-linear"))
        log = state(output)["log_history"]
        model = PeftModel.from_pretrained(self.base(name), output)
        loss = self.trainer(name, model, self.folder / "theirs").evaluate()["eval_loss"]
        self.assert_relative(loss, [row["eval_loss"] for row in log if "eval_loss" in row][-1], 1e-4, name)

        half = GOLDENS[name]["config"]["eval_steps"]
        checkpoint = output / f"checkpoint-{half}"
        trainer = self.trainer(name, PeftModel.from_pretrained(self.base(name), checkpoint, is_trainable=True),
                               self.folder / "theirs")
        trainer.train(resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(trainer.state.log_history, log, first_step=half + 1)
        last = f"checkpoint-{GOLDENS[name]['config']['max_steps']}"
        theirs = load_file(self.folder / "theirs" / last / "adapter_model.safetensors")
        noise = self.NOISE.get(name.split("/")[1], ())
        theirs = {key: value for key, value in theirs.items() if not key.endswith(noise)}
        self.assert_same_weights(load_file(output / "adapter_model.safetensors"), theirs, WEIGHTS)

    def test_a_pooler_that_the_base_lacks_is_saved(self):
        """PEFT reads it; otherwise its pooler would be another at each start."""
        from peft import PeftModel

        name = "deberta-v2/weather"
        base = self.folder / "base"
        shutil.copytree(TASKS / "deberta-v2/words", base)
        output = self.ours(name, model_name_or_path=str(base))
        labels = {"num_labels": 2}
        model = PeftModel.from_pretrained(
            transformers.AutoModelForSequenceClassification.from_pretrained(base, **labels), output)
        loss = self.trainer(name, model, self.folder / "theirs").evaluate()["eval_loss"]
        log = state(output)["log_history"]
        self.assert_relative(loss, [row["eval_loss"] for row in log if "eval_loss" in row][-1], 1e-4, name)

    def test_embeddings_of_an_encoder(self):
        """Of RoBERTa, whose tables have a row of padding, of BERT, and one whose weight an output layer shares."""
        tables = ["word_embeddings", "position_embeddings"]
        self.check("roberta/weather", lora_target_modules=[*tables, "query"])
        shutil.rmtree(self.folder / "run")
        shutil.rmtree(self.folder / "theirs")
        self.check("bert/choices", lora_target_modules=[*tables, "value"])
        shutil.rmtree(self.folder / "run")
        shutil.rmtree(self.folder / "theirs")
        self.check("modernbert/words", lora_target_modules=["tok_embeddings", "Wqkv"])

    def test_predict_and_evaluate_name_the_labels(self):
        from peft import PeftModel

        output = self.ours("roberta/weather")
        text = "A storm broke the glass."
        answer = json.loads(run_binary("predict", output, "--text", text, "--probabilities", "all"))
        scores = {one["label"]: one["score"] for one in answer}
        tokenizer = transformers.AutoTokenizer.from_pretrained(output)
        model = PeftModel.from_pretrained(self.base("roberta/weather"), output).eval()
        with torch.no_grad():
            theirs = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        for label, score in zip(("calm", "rough"), theirs.tolist(), strict=True):
            self.assertAlmostEqual(scores[label], score, places=4)


def add_task(name):
    setattr(TaskAdapter, "test_" + name.replace("/", "_").replace("-", "_"), lambda self: self.check(name))


for each in GOLDENS:
    family, work = each.split("/")
    if each == "bert/cargo":
        continue  # PEFT's model for question answering drops token_type_ids
    if work in ("weather", "words", "choices") or family in ("bert", "roberta", "modernbert"):
        add_task(each)


if __name__ == "__main__":
    import unittest

    unittest.main()
