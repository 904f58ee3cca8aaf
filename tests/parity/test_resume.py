# SPDX-License-Identifier: MIT
"""Runs move between finetune and transformers' Trainer at a checkpoint: the following steps equal those of
a run that never moved (data in order, no dropout)."""

import json
import shutil
from collections import OrderedDict

import torch
from make_goldens import make_trainer
from safetensors.torch import load_file, save_file
from support import MLM, TRAJECTORIES, ParityTest, run_binary, state, weights
from test_tasks import GOLDENS, write_config

LINEAR = TRAJECTORIES["linear"]["config"]
# As in test_trajectory.py: float32 sums in another order, over some steps of Adam.
LOSS = 1e-3


def save_legacy(value, path):
    torch.save(value, path, _use_new_zipfile_serialization=False)


def split(folder, save, pattern, index, count=3):
    """Replaces model.safetensors of a checkpoint with shards."""
    tensors = list(load_file(folder / "model.safetensors").items())
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for i in range(count):
        name = pattern.format(i + 1, count)
        part = OrderedDict(tensors[i::count])
        save(part, folder / name)
        weight_map.update(dict.fromkeys(part, name))
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def make_pickled(folder, save):
    """Writes the files of Trainer(save_safetensors=False) in transformers 4, with tied names and buffers."""
    tensors = OrderedDict(load_file(folder / "model.safetensors"))
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"]
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"]
    tensors["roberta.embeddings.position_ids"] = torch.arange(64).expand((1, -1))
    save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


class TheirCheckpoint(ParityTest):
    """Resumes from checkpoint-12 of transformers' Trainer, in every format that it may have."""

    def their_checkpoint(self, config=LINEAR, optim="adamw_torch"):
        from transformers.training_args import OptimizerNames

        folder = self.folder / "theirs"
        trainer = make_trainer(config, MLM, folder, save_strategy="steps", save_steps=12)
        trainer.args.optim = OptimizerNames(optim)
        trainer.args.max_steps = 24
        trainer.train()
        return folder / "checkpoint-12"

    def check(self, checkpoint, name="linear"):
        config = {**TRAJECTORIES[name]["config"], "save_strategy": "no"}
        output = self.train(config, "ours", resume_from_checkpoint=str(checkpoint))
        self.assert_same_log(
            state(output)["log_history"], TRAJECTORIES[name]["log"], first_step=13
        )
        ours = weights(output)
        shutil.rmtree(output)
        return ours

    def test_as_it_is(self):
        ours = self.check(self.their_checkpoint())
        self.assert_same_weights(ours, load_file(MLM / "final-linear.safetensors"), 2e-3)

    def test_weights_in_other_files(self):
        checkpoint = self.their_checkpoint()
        golden = self.check(checkpoint)
        names = {
            "safetensors": ("model-{:05}-of-{:05}.safetensors", "model.safetensors.index.json"),
            "bin": ("pytorch_model-{:05}-of-{:05}.bin", "pytorch_model.bin.index.json"),
        }
        for form, change in {
            "pytorch_model.bin": lambda folder: make_pickled(folder, torch.save),
            "legacy pytorch_model.bin": lambda folder: make_pickled(folder, save_legacy),
            "shards": lambda folder: split(folder, save_file, *names["safetensors"]),
            "pickled shards": lambda folder: split(folder, torch.save, *names["bin"]),
            "legacy pickled shards": lambda folder: split(folder, save_legacy, *names["bin"]),
        }.items():
            with self.subTest(form):
                copy = self.folder / form.replace(" ", "-") / "checkpoint-12"
                shutil.copytree(checkpoint, copy)
                change(copy)
                ours = self.check(copy)
                for name, tensor in golden.items():
                    self.assertTrue(torch.equal(ours[name], tensor), name)

    def test_states_of_other_optimizers_and_versions(self):
        for optim in ("adamw_torch", "adamw_torch_fused"):
            with self.subTest(optim):
                self.check(self.their_checkpoint(optim=optim))
        checkpoint = self.folder / "theirs" / "checkpoint-12"
        saved = torch.load(checkpoint / "optimizer.pt", weights_only=True)
        for slot in saved["state"].values():  # as torch 1.11 stored it
            slot["step"] = int(slot["step"])
        for group in saved["param_groups"]:
            for key in ("foreach", "fused", "capturable", "maximize", "decoupled_weight_decay"):
                group.pop(key, None)
        save_legacy(saved, checkpoint / "optimizer.pt")
        scheduler = torch.load(checkpoint / "scheduler.pt", weights_only=True)
        save_legacy(scheduler, checkpoint / "scheduler.pt")
        self.check(checkpoint)

    def test_files_without_use(self):
        """Ignored files: a loss scale of fp16, generator states, and a pickle that must not be opened."""
        checkpoint = self.their_checkpoint()
        self.assertTrue((checkpoint / "rng_state.pth").exists())
        torch.save({"scale": 65536.0, "growth_factor": 2.0}, checkpoint / "scaler.pt")
        (checkpoint / "training_args.bin").write_bytes(b"cposix\nsystem\n(S'touch x'\ntR.")
        self.check(checkpoint)

    def test_schedules_that_follow_a_metric(self):
        for name in metric_schedules():
            with self.subTest(name):
                checkpoint = self.their_checkpoint(TRAJECTORIES[name]["config"])
                self.check(checkpoint, name)
                shutil.rmtree(checkpoint.parent)


def metric_schedules():
    from transformers.trainer_utils import SchedulerType

    names = {kind.value for kind in SchedulerType}
    return sorted(names & {"reduce_lr_on_plateau", "greedy"})


class OurCheckpoint(ParityTest):
    def test_schedules_that_follow_a_metric(self):
        for name in metric_schedules():
            with self.subTest(name):
                config, golden = TRAJECTORIES[name]["config"], TRAJECTORIES[name]["log"]
                output = self.train(config, f"ours-{name}", save_strategy="steps", save_steps=12)
                trainer = make_trainer(config, MLM, self.folder / f"theirs-{name}")
                trainer.train(resume_from_checkpoint=str(output / "checkpoint-12"))
                theirs = [r for r in trainer.state.log_history if r["step"] > 12]
                self.assert_same_log(theirs, golden, first_step=13)

    def test_goes_on_with_another_kind_of_adamw(self):
        from transformers.training_args import OptimizerNames

        output = self.train(LINEAR, save_strategy="steps", save_steps=12)
        trainer = make_trainer(LINEAR, MLM, self.folder / "theirs")
        trainer.args.optim = OptimizerNames.ADAMW_TORCH_FUSED
        trainer.train(resume_from_checkpoint=str(output / "checkpoint-12"))
        theirs = [r for r in trainer.state.log_history if r["step"] > 12]
        self.assert_same_log(theirs, TRAJECTORIES["linear"]["log"], first_step=13)


class Tasks(ParityTest):
    """Moves every task at step 6 of 12 in both directions, each with another family."""

    def make_trainer(self, name, output, **more):
        import make_task_goldens

        family, work = name.split("/")
        # Metrics need packages that these tests do not install; losses are sufficient.
        return make_task_goldens.make_trainer(family, work, output, eval_strategy="no", **more)

    def check_losses(self, log, name):
        golden = {r["step"]: r for r in GOLDENS[name]["log"] if "loss" in r}
        rows = [r for r in log if "loss" in r and r["step"] > 6]
        self.assertEqual([r["step"] for r in rows], list(range(7, 13)))
        for row in rows:
            theirs, what = golden[row["step"]], f"{name}, step {row['step']}"
            self.assert_relative(row["loss"], theirs["loss"], LOSS, what)
            self.assert_relative(row["grad_norm"], theirs["grad_norm"], 1e-2, what)
            self.assert_relative(row["learning_rate"], theirs["learning_rate"], 1e-4, what)

    def check(self, name):
        """Trains the first half here and the second there, and the reverse."""
        path = write_config(
            self.folder, name, save_strategy="steps", save_steps=6, eval_strategy="no"
        )
        run_binary("train", path)
        ours = self.folder / "run" / "checkpoint-6"
        trainer = self.make_trainer(name, self.folder / "theirs")
        trainer.train(resume_from_checkpoint=str(ours))
        self.assertEqual(trainer.state.global_step, 12)
        self.check_losses(trainer.state.log_history, name)

        trainer = self.make_trainer(
            name, self.folder / "whole", save_strategy="steps", save_steps=6
        )
        trainer.train()
        theirs = self.folder / "whole" / "checkpoint-6"
        config = write_config(
            self.folder,
            name,
            eval_strategy="no",
            output_dir=str(self.folder / "resumed"),
            resume_from_checkpoint=str(theirs),
        )
        run_binary("train", config)
        self.check_losses(state(self.folder / "resumed")["log_history"], name)


def add_tests():
    for name in (
        "bert/weather",
        "roberta/likeness",
        "xlm-roberta/choices",
        "big_bird/names",
        "bert/cargo",
        "big_bird/words",
        "roberta/choices",
        "xlm-roberta/names",
        "big_bird/cargo",
        "xlm-roberta/weather",
    ):
        title = "test_" + name.replace("/", "_").replace("-", "_")
        setattr(Tasks, title, lambda self, name=name: self.check(name))


add_tests()
