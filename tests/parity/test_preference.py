# SPDX-License-Identifier: MIT
"""task: dpo and orpo beside TRL's DPOTrainer and ORPOTrainer: ids, losses, rewards, weights."""

import json
from functools import partial

import torch
from safetensors.torch import load_file
from support import ROOT, ParityTest, adam_steps, run_binary, save_tiny_llama, state, weights

TOKENIZER = ROOT / "tests" / "fixtures" / "parity" / "tasks" / "llama" / "tokenizer"
ANSWERS = ROOT / "tests" / "fixtures" / "tasks" / "answers-train.jsonl"
STEPS, BATCH, RATE = 12, 8, 5e-4
# float32 sums in another order, over twelve steps of Adam.
LOSS, REWARD, WEIGHT = 1e-3, 1e-3, 2e-3
TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + ': ' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant:' }}{% endif %}"
)
MEASURES = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen",
            "logps/rejected")  # fmt: skip
ADAPTER = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}


def rows_of(kind):
    """Rows of answers: texts, texts with an implicit prompt, messages, or whole conversations."""
    rows = []
    for line in ANSWERS.read_text().splitlines():
        row = json.loads(line)
        texts = {"chosen": " " + row["answer"] + " it is", "rejected": " " + row["wrong"]}
        if kind == "texts":
            rows.append({"prompt": row["question"], **texts})
        elif kind == "implicit":
            rows.append({name: row["question"] + text for name, text in texts.items()})
        else:
            question = [{"role": "user", "content": row["question"]}]
            said = {name: [{"role": "assistant", "content": text.strip()}] for name, text in texts.items()}
            if kind == "messages":
                rows.append({"prompt": question, **said})
            else:
                rows.append({name: question + answer for name, answer in said.items()})
    return rows


def start(folder):
    save_tiny_llama(folder / "start", TOKENIZER, TEMPLATE, "LlamaForCausalLM", initializer_range=0.2)


def common(folder):
    return {"output_dir": str(folder / "theirs"), "report_to": "none", "use_cpu": True,
            "gradient_checkpointing": False, "bf16": False, "logging_steps": 1}  # fmt: skip


def dpo_trainer(folder, rows, adapter=None, **options):
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer

    model = LlamaForCausalLM.from_pretrained(folder / "start")
    peft_config = None
    if adapter == "new":
        from peft import LoraConfig

        peft_config = LoraConfig(**ADAPTER)
    elif adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "start")
    args = DPOConfig(**common(folder), max_length=options.pop("max_length", 200), **options)
    return DPOTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
                      peft_config=peft_config)  # fmt: skip


def train_theirs(trainer, batch=BATCH):
    """Returns the losses, and the mean of each measure of each step."""
    data = list(trainer.train_dataset)
    measured = []

    def loss_of(batch):
        trainer._metrics["train"].clear()
        value = trainer.compute_loss(trainer.model, trainer.data_collator(batch))
        measured.append({name: values[0] for name, values in trainer._metrics["train"].items()})
        return value

    return adam_steps(trainer.model, STEPS, batch, data, RATE, loss_of), measured


class Preference(ParityTest):
    def ours(self, rows, task="dpo", **keys):
        return self.train_rows(
            rows,
            task=task,
            validation_file=str(self.folder / "rows.jsonl"),
            per_device_train_batch_size=BATCH // 2,
            effective_batch_size=BATCH,
            max_steps=STEPS,
            learning_rate=RATE,
            eval_strategy="steps",
            eval_steps=STEPS,
            **{"max_seq_length": 200, **keys},
        )

    def check_measures(self, run, measured, names):
        log = [row for row in state(run)["log_history"] if "loss" in row]
        for step, (own, other) in enumerate(zip(log, measured), 1):
            for name in names:
                # Accuracies jump where the rewards of a pair, such as those of the first step, are equal.
                delta = 1.0 if name == "rewards/accuracies" and step == 1 else REWARD * max(1.0, abs(other[name]))
                self.assertAlmostEqual(own[name], other[name], delta=delta, msg=f"step {step}: {name}")

    def check_dpo(self, kind, keys=None, options=None, adapter=None):
        start(self.folder)
        rows = rows_of(kind)
        keys = dict(keys or {})
        if adapter is not None:
            keys.update({"use_peft": True, "lora_r": 4, "lora_alpha": 8, "lora_dropout": 0.0})
        if adapter == "sft":
            sft = [{"messages": one["prompt"] + one["chosen"]} for one in rows_of("messages")]
            self.train_rows(sft, task="sft", max_steps=20, learning_rate=1e-2, max_seq_length=200,
                            output_dir=str(self.folder / "sft"), **keys)  # fmt: skip
            adapter = str(self.folder / "sft")
            keys["adapter_name_or_path"] = adapter
        run = self.ours(rows, **keys)
        # Its adapter begins as ours, which only has to be any.
        begin = adapter
        if adapter == "new":
            begin = str(self.folder / "begin")
            self.train_rows(rows, task="dpo", max_steps=1, learning_rate=0.0, output_dir=begin, **keys)
        trainer = dpo_trainer(self.folder, rows, **(options or {}),
                              **({} if begin is None else {"adapter": begin}))  # fmt: skip
        if adapter == "new":  # TRL would take the loaded one for the reference; it is the base all the same
            self.assertTrue(all(not value.any() for name, value in load_file(
                f"{begin}/adapter_model.safetensors").items() if "lora_B" in name))  # fmt: skip
        values, measured = train_theirs(trainer)
        self.assert_same_losses(run, values, LOSS)
        self.check_measures(run, measured, MEASURES)
        if adapter is None:
            self.assert_same_weights(weights(run), trainer.model.state_dict(), WEIGHT)
        else:
            theirs = {name.replace(".default", ""): value for name, value in trainer.model.state_dict().items()
                      if "lora" in name and ".ref." not in name}  # fmt: skip
            self.assert_same_weights(load_file(run / "adapter_model.safetensors"), theirs, WEIGHT)
        return run

    def test_texts(self):
        self.check_dpo("texts")

    def test_implicit_prompts(self):
        self.check_dpo("implicit")

    def test_messages(self):
        self.check_dpo("messages", {"beta": 0.3}, {"beta": 0.3})

    def test_whole_conversations_that_are_cut(self):
        self.check_dpo("conversations", {"max_seq_length": 40}, {"max_length": 40})

    def test_losses(self):
        for name, more in (("hinge", {}), ("ipo", {}), ("sigmoid_norm", {"beta": 2.0}),
                           ("robust", {"label_smoothing": 0.1})):  # fmt: skip
            with self.subTest(loss=name):
                self.setUp()
                self.check_dpo("texts", {"loss_type": name, **more}, {"loss_type": [name], **more})

    def test_adapters(self):
        for keys in ({}, {"precompute_ref_log_probs": False}):
            with self.subTest(keys=keys):
                self.setUp()
                self.check_dpo("messages", keys, adapter="new")

    def test_adapter_that_an_sft_run_trained(self):
        self.check_dpo("messages", adapter="sft")

    def test_evaluation(self):
        run = self.check_dpo("texts")
        results = json.loads((run / "eval_results.json").read_text())
        rows = rows_of("texts")
        trainer = dpo_trainer(self.folder, rows)
        from transformers import LlamaForCausalLM

        trained = LlamaForCausalLM.from_pretrained(run)
        with torch.no_grad():
            trainer.model.load_state_dict(trained.state_dict())
            trainer.model.eval()
            trainer._metrics["eval"].clear()
            loss = trainer.compute_loss(trainer.model, trainer.data_collator(list(trainer.train_dataset)))
        self.assert_relative(results["eval_loss"], loss.item(), LOSS, "eval_loss")
        for name in MEASURES:
            other = trainer._metrics["eval"][name][0]
            self.assertAlmostEqual(results[f"eval_{name}"], other, delta=REWARD * max(1.0, abs(other)), msg=name)
        # The model that is evaluated later has the same reference.
        run_binary("evaluate", self.folder / "run.json")
        later = json.loads((run / "eval_results.json").read_text())
        for name in ("eval_loss", *(f"eval_{name}" for name in MEASURES)):
            self.assertEqual(later[name], results[name], name)

    def check_without_reference(self, trainer_class, options, names, **keys):
        from datasets import Dataset
        from transformers import AutoTokenizer, LlamaForCausalLM

        start(self.folder)
        rows = rows_of("texts")
        run = self.ours(rows, **keys)
        model = LlamaForCausalLM.from_pretrained(self.folder / "start")
        trainer = trainer_class(
            model=model,
            args=options(**common(self.folder), max_length=200, remove_unused_columns=False),
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(self.folder / "start"),
        )
        data = list(trainer.train_dataset)
        measured = []

        def loss_of(batch):
            value, measures = trainer.get_batch_loss_metrics(model, trainer.data_collator(batch))
            measured.append(measures)
            return value

        self.assert_same_losses(run, adam_steps(model, STEPS, BATCH, data, RATE, loss_of), LOSS)
        self.check_measures(run, measured, names)
        self.assert_same_weights(weights(run), model.state_dict(), WEIGHT)

    def test_orpo(self):
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        names = (*MEASURES, "nll_loss", "log_odds_ratio", "log_odds_chosen")
        self.check_without_reference(ORPOTrainer, partial(ORPOConfig, beta=0.2), names, task="orpo", beta=0.2)

    def test_simpo(self):
        from trl.experimental.cpo import CPOConfig, CPOTrainer

        options = partial(CPOConfig, beta=2.0, simpo_gamma=0.8, loss_type="simpo", cpo_alpha=0.0)
        self.check_without_reference(CPOTrainer, options, MEASURES, loss_type="simpo", beta=2.0, simpo_gamma=0.8)

    def check_kto(self, loss, rows, theirs):
        from datasets import Dataset
        from transformers import AutoTokenizer, LlamaForCausalLM
        from trl import KTOConfig, KTOTrainer

        start(self.folder)
        count = len(theirs)
        run = self.train_rows(
            rows, task="kto", loss_type=loss, beta=0.3, desirable_weight=1.5, max_seq_length=200,
            per_device_train_batch_size=count // 2, effective_batch_size=count, max_steps=STEPS, learning_rate=RATE,
            validation_file=str(self.folder / "rows.jsonl"), eval_strategy="steps", eval_steps=STEPS,
            per_device_eval_batch_size=count)  # fmt: skip
        trainer = KTOTrainer(
            model=LlamaForCausalLM.from_pretrained(self.folder / "start"),
            args=KTOConfig(**common(self.folder), max_length=200, beta=0.3, desirable_weight=1.5, loss_type=loss,
                           per_device_train_batch_size=count, train_sampling_strategy="sequential"),
            train_dataset=Dataset.from_list(theirs),
            processing_class=AutoTokenizer.from_pretrained(self.folder / "start"),
        )  # fmt: skip
        values, measured = train_theirs(trainer, count)
        self.assert_same_losses(run, values, LOSS)
        names = ["rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "kl"]
        self.check_measures(run, measured, names)
        self.assert_same_weights(weights(run), trainer.model.state_dict(), WEIGHT)

    def test_kto(self):
        # The answers of 16 samples, some desirable: one update has all, so that both mismatch them alike.
        pairs = rows_of("texts")[:16]
        rows = [{"prompt": row["prompt"], "completion": row["chosen" if i % 3 else "rejected"], "label": bool(i % 3)}
                for i, row in enumerate(pairs)]  # fmt: skip
        self.check_kto("kto", rows, rows)

    def test_kto_of_pairs_without_divergence(self):
        pairs = rows_of("messages")[:8]
        rows = [{"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
                for row in pairs for side in ("chosen", "rejected")]  # fmt: skip
        self.check_kto("apo_zero_unpaired", pairs, rows)

    def test_ids(self):
        for kind, limit in (("texts", 200), ("implicit", 200), ("messages", 200), ("conversations", 40)):
            with self.subTest(kind=kind):
                self.setUp()
                start(self.folder)
                rows = rows_of(kind)
                theirs = dpo_trainer(self.folder, rows, max_length=limit).train_dataset
                self.ours(rows, max_seq_length=limit)
                run_binary("prepare", self.folder / "run.json", "--rows", self.folder / "ids.jsonl")
                lines = [json.loads(line) for line in (self.folder / "ids.jsonl").read_text().splitlines()]
                self.assertEqual(len(lines), 2 * len(theirs))
                for i, row in enumerate(theirs):
                    for line, side in zip(lines[2 * i : 2 * i + 2], ("chosen", "rejected")):
                        self.assertEqual(line["side"], side)
                        self.assertEqual(line["input_ids"], (row["prompt_ids"] + row[f"{side}_ids"])[:limit])
                        learned = [label for label in line["labels"] if label != -100]
                        self.assertEqual(learned, row[f"{side}_ids"][: limit - len(row["prompt_ids"])])
