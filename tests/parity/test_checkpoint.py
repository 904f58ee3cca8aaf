# SPDX-License-Identifier: MIT
"""Checkpoints have Hugging Face's format: its libraries read ours, and we read theirs."""

import json
import math

import torch
from make_goldens import make_trainer
from safetensors import safe_open
from support import (
    MLM,
    TEXT,
    TRAJECTORIES,
    ParityTest,
    load_strictly,
    run_binary,
    scratch_folder,
    state,
    train,
    weights,
)

LINEAR = TRAJECTORIES["linear"]["config"]
TRAINER_STATE_KEYS = {
    "best_global_step",
    "best_metric",
    "best_model_checkpoint",
    "epoch",
    "eval_steps",
    "global_step",
    "is_hyper_param_search",
    "is_local_process_zero",
    "is_world_process_zero",
    "log_history",
    "logging_steps",
    "max_steps",
    "num_input_tokens_seen",
    "num_train_epochs",
    "save_steps",
    "stateful_callbacks",
    "total_flos",
    "train_batch_size",
    "trial_name",
    "trial_params",
}


class Checkpoint(ParityTest):
    @classmethod
    def setUpClass(cls):
        config = {**LINEAR, "save_strategy": "steps", "save_steps": 12, "weight_decay": 0.1}
        scratch = scratch_folder(cls.addClassCleanup)
        cls.output = train(scratch, config, report_to="tensorboard", logging_steps=3)
        cls.half = cls.output / "checkpoint-12"

    def test_models_load_with_every_key(self):
        for folder in (self.half, self.output / "checkpoint-24", self.output):
            model = load_strictly(folder)
            decoder, words = model.lm_head.decoder.weight, model.get_input_embeddings().weight
            self.assertIs(decoder, words, "the head is tied to the embeddings")

    def test_the_final_model_is_the_last_checkpoint(self):
        last, final = weights(self.output / "checkpoint-24"), weights(self.output)
        self.assertEqual(set(last), set(final))
        for name in last:
            self.assertTrue(torch.equal(last[name], final[name]), name)

    def test_safetensors_holds_what_transformers_writes(self):
        with safe_open(self.half / "model.safetensors", framework="pt") as ours:
            with safe_open(MLM / "model" / "model.safetensors", framework="pt") as theirs:
                self.assertEqual(set(ours.keys()), set(theirs.keys()))
                self.assertEqual(ours.metadata().get("format"), "pt")
                for name in theirs.keys():
                    mine, golden = ours.get_slice(name), theirs.get_slice(name)
                    self.assertEqual(mine.get_shape(), golden.get_shape(), name)
                    self.assertEqual(mine.get_dtype(), golden.get_dtype(), name)

    def test_config_keeps_what_it_was_given(self):
        theirs = json.loads((MLM / "model" / "config.json").read_text())
        ours = json.loads((self.half / "config.json").read_text())
        for key in ("transformers_version", "use_cache"):  # their Trainer disables use_cache
            theirs.pop(key)
        self.assertEqual({k: ours.get(k) for k in theirs}, theirs)

    def test_trainer_state_has_the_keys_of_transformers(self):
        from transformers import TrainerState

        for folder in (self.half, self.output):
            self.assertEqual(set(state(folder)), TRAINER_STATE_KEYS, folder)
            TrainerState.load_from_json(str(folder / "trainer_state.json"))
        half = state(self.half)
        self.assertEqual((half["global_step"], half["max_steps"]), (12, 24))
        self.assertEqual([r["step"] for r in half["log_history"] if "loss" in r], [3, 6, 9, 12])

    def test_results_files_agree_with_the_log(self):
        results = {
            name: json.loads((self.output / f"{name}_results.json").read_text())
            for name in ("train", "eval", "all")
        }
        log = state(self.output)["log_history"]
        last_eval = [r for r in log if "eval_loss" in r][-1]["eval_loss"]
        self.assertEqual(results["all"], {**results["train"], **results["eval"]})
        # run_mlm evaluates again after training, with the same weights.
        self.assert_relative(results["eval"]["eval_loss"], last_eval, 1e-6, "eval_loss")
        perplexity = math.exp(results["eval"]["eval_loss"])
        self.assert_relative(results["eval"]["perplexity"], perplexity, 1e-6, "perplexity")
        for key in ("train_loss", "train_runtime", "epoch"):
            self.assertIn(key, results["train"])

    def test_optimizer_loads_into_torch(self):
        saved = torch.load(self.half / "optimizer.pt", weights_only=True)
        self.assertEqual([g["weight_decay"] for g in saved["param_groups"]], [0.1, 0.0])
        optimizer = fresh_optimizer(load_strictly(self.half))
        optimizer.load_state_dict(saved)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                kept = optimizer.state[parameter]
                self.assertEqual(kept["exp_avg"].shape, parameter.shape)
                self.assertEqual(kept["exp_avg_sq"].shape, parameter.shape)
                self.assertEqual(float(kept["step"]), 12)
                parameter.grad = torch.zeros_like(parameter)
        optimizer.step()

    def test_optimizer_holds_the_keys_of_transformers(self):
        trainer = make_trainer(
            LINEAR, MLM, self.folder / "theirs", max_steps=2, save_strategy="steps", save_steps=2
        )
        trainer.train()
        theirs = self.folder / "theirs" / "checkpoint-2"
        for name in ("optimizer.pt", "scheduler.pt"):
            ours = torch.load(self.half / name, weights_only=True)
            golden = torch.load(theirs / name, weights_only=True)
            self.assertEqual(set(ours), set(golden), name)
            if name == "optimizer.pt":
                for mine, group in zip(ours["param_groups"], golden["param_groups"], strict=True):
                    self.assertEqual(set(mine), set(group))
                    self.assertEqual(mine["params"], group["params"])
                self.assertEqual(set(ours["state"]), set(golden["state"]))
        self.assertEqual(set(state(self.half)), set(state(theirs)))

    def test_transformers_resumes_from_our_checkpoint(self):
        trainer = make_trainer(
            {**LINEAR, "weight_decay": 0.1}, MLM, self.folder / "theirs", max_steps=24
        )
        trainer.train(resume_from_checkpoint=str(self.half))
        self.assertEqual(trainer.state.global_step, 24)
        # Logged every 3 steps, as trainer_state.json of the checkpoint specifies.
        theirs = [r for r in trainer.state.log_history if "loss" in r]
        ours = [r for r in state(self.output)["log_history"] if "loss" in r]
        self.assertEqual([r["step"] for r in theirs], [r["step"] for r in ours])
        for mine, golden in zip(ours, theirs):
            self.assert_relative(mine["loss"], golden["loss"], 1e-3, f"step {mine['step']}")
            self.assert_relative(
                mine["learning_rate"], golden["learning_rate"], 1e-4, f"step {mine['step']}"
            )
        final = {n: p.detach() for n, p in trainer.model.named_parameters()}
        self.assert_same_weights(weights(self.output), final, 2e-3)

    def test_tensorboard_reads_the_log(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        files = sorted((self.output / "runs").rglob("events.out.tfevents.*"))
        self.assertTrue(files, "no event file under runs/")
        events = EventAccumulator(str(files[0].parent))
        events.Reload()
        log = state(self.output)["log_history"]
        for tag, key in [
            ("train/loss", "loss"),
            ("train/grad_norm", "grad_norm"),
            ("train/learning_rate", "learning_rate"),
            ("train/epoch", "epoch"),
            ("eval/loss", "eval_loss"),
        ]:
            self.assertIn(tag, events.Tags()["scalars"])
            scalars = {e.step: e.value for e in events.Scalars(tag)}
            rows = [r for r in log if key in r and ("loss" in r or "eval_loss" in r)]
            self.assertEqual(sorted(scalars), sorted({r["step"] for r in rows}), tag)
            for row in rows:
                self.assert_relative(scalars[row["step"]], row[key], 1e-6, f"{tag} {row['step']}")


class FillMask(ParityTest):
    """`predict` prints the results of transformers' fill-mask pipeline."""

    TEXTS = [
        "I lit the <mask> at seven o'clock.",
        "<mask> fog came in from the sea.",
        "The ship passed before noon, and none in the afternoon <mask>",
        "Ĝi estas <mask>: 🌊 日本 e\u0301.",
    ]

    @classmethod
    def setUpClass(cls):
        config = {**LINEAR, "learning_rate": 1e-2, "max_steps": 40}
        cls.output = train(scratch_folder(cls.addClassCleanup), config)

    def pipeline(self):
        from transformers import AutoTokenizer, pipeline

        tokenizer = AutoTokenizer.from_pretrained(self.output)
        model = load_strictly(self.output)
        return pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")

    def predict(self, text):
        said = run_binary("predict", self.output, "--input", "-", stdin=text.encode())
        return [json.loads(x) for x in said.decode().split("\n") if x]

    def assert_same_fillings(self, ours, theirs, text):
        self.assertEqual(len(ours), len(theirs), text)
        for mine, golden in zip(ours, theirs):
            self.assertEqual(set(mine), {"score", "token", "token_str", "sequence"})
            self.assertAlmostEqual(mine["score"], golden["score"], delta=1e-5, msg=text)
        # Two tokens may be swapped if their scores agree to 1e-5.
        by_token = {g["token"]: g for g in theirs}
        for mine in ours:
            golden = by_token.get(mine["token"])
            if golden is None:
                self.assertAlmostEqual(mine["score"], theirs[-1]["score"], delta=1e-5, msg=text)
                continue
            self.assertAlmostEqual(mine["score"], golden["score"], delta=1e-5, msg=text)
            self.assertEqual(mine["token_str"], golden["token_str"], text)
            self.assertEqual(mine["sequence"], golden["sequence"], text)

    def test_scores_and_texts_of_one_mask(self):
        fill = self.pipeline()
        lines = "".join(t + "\n" for t in self.TEXTS)
        ours = self.predict(lines)
        self.assertEqual(len(ours), len(self.TEXTS))
        for text, mine in zip(self.TEXTS, ours):
            self.assert_same_fillings(mine, fill(text), text)

    def test_text_on_the_command_line(self):
        said = run_binary("predict", self.output, "--text", self.TEXTS[0])
        self.assert_same_fillings(
            json.loads(said), self.pipeline()(self.TEXTS[0]), self.TEXTS[0]
        )

    def test_a_file(self):
        path = self.folder / "input.txt"
        path.write_text(self.TEXTS[0] + "\n" + self.TEXTS[1] + "\n")
        said = run_binary("predict", self.output, "--input", path).decode().splitlines()
        fill = self.pipeline()
        self.assertEqual(len(said), 2)
        for line, text in zip(said, self.TEXTS):
            self.assert_same_fillings(json.loads(line), fill(text), text)

    def test_several_masks_give_a_list_each(self):
        text = "The <mask> was lit at seven o'clock and put out at <mask>."
        theirs = self.pipeline()(text)
        (ours,) = self.predict(text + "\n")
        self.assertEqual(len(ours), 2)
        for mine, golden in zip(ours, theirs):
            self.assert_same_fillings(mine, golden, text)

    def test_the_saved_tokenizer_is_the_one_it_was_given(self):
        from transformers import AutoTokenizer

        given = AutoTokenizer.from_pretrained(MLM / "model")
        saved = AutoTokenizer.from_pretrained(self.output)
        self.assertEqual(saved.get_vocab(), given.get_vocab())
        self.assertEqual(saved.special_tokens_map, given.special_tokens_map)
        for line in (TEXT / "lighthouse-valid.txt").read_text().splitlines() + self.TEXTS:
            self.assertEqual(saved(line)["input_ids"], given(line)["input_ids"], line)


def fresh_optimizer(model):
    """AdamW with the parameter groups of transformers' Trainer."""
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(output_dir="unused", use_cpu=True, weight_decay=0.1, report_to="none")
    return Trainer(model=model, args=args).create_optimizer()


class Arguments(ParityTest):
    def test_dumped_training_arguments_are_a_configuration(self):
        from transformers import TrainingArguments

        args = TrainingArguments(output_dir="run", use_cpu=True, report_to="none", learning_rate=1e-4)
        keys = {**json.loads(args.to_json_string()), "do_train": True}
        path = scratch_folder(self.addCleanup) / "args.json"
        path.write_text(json.dumps({**keys, "train_file": "t.jsonl", "model_name_or_path": "m"}))
        run_binary("config", "check", path, "--no_files", "--task", "sequence_classification")
