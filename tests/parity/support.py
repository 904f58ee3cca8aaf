# SPDX-License-Identifier: MIT
"""Shared functions of the parity tests: run the binary, read its files, compare numbers."""

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import torch
import transformers
from warm_program import run_program

ROOT = Path(__file__).resolve().parent.parent.parent
MLM = ROOT / "tests" / "fixtures" / "parity" / "mlm"
TEXT = ROOT / "tests" / "fixtures" / "text"
TRAJECTORIES = json.loads((MLM / "trajectory.json").read_text())

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def scratch_folder(add_cleanup):
    folder = Path(tempfile.mkdtemp(prefix="finetune-parity-"))
    add_cleanup(shutil.rmtree, folder, ignore_errors=True)
    return folder


def adam_steps(model, steps, batch_size, rows, rate, loss_of):
    """Trains on the rows in their order, as train_rows() does; returns the losses. `loss_of`: of a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    model.train()
    values = []
    for step in range(steps):
        batch = [rows[(step * batch_size + i) % len(rows)] for i in range(batch_size)]
        value = loss_of(batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        values.append(value.item())
    return values


def save_tiny_llama(folder, tokenizer, chat_template, class_name, **config):
    """Saves a Llama of 2 layers with random weights, and a tokenizer with a chat template."""
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    words.chat_template = chat_template
    words.save_pretrained(folder)
    torch.manual_seed(3)
    sizes = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        pad_token_id=words.pad_token_id, **config)  # fmt: skip
    getattr(transformers, class_name)(sizes).save_pretrained(folder)


def run_binary(*arguments, stdin=None, expect=0):
    """Runs the binary and returns its standard output; another exit code fails the test."""
    command = [os.environ["FINETUNE_BINARY"], *map(str, arguments)]
    done = run_program(command, stdin)
    if done.returncode != expect:
        said = done.stderr.decode(errors="replace")[-3000:]
        raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{said}")
    return done.stdout


def run_for_code(*arguments, stdin=None):
    """Runs the binary; returns what it said as text, with its exit code."""
    done = run_program([os.environ["FINETUNE_BINARY"], *map(str, arguments)], stdin)
    done.stdout = done.stdout.decode()
    done.stderr = done.stderr.decode(errors="replace")
    return done


def train(folder, config, name="run", **more):
    """Runs `finetune train` on the tiny model; returns the run's output folder."""
    keys = {
        "model_name_or_path": str(MLM / "model"),
        "train_file": "train.jsonl",
        "validation_file": "eval.jsonl",
        "output_dir": str(folder / name),
        "cache_dir": str(folder / "cache"),
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        **config,
        **more,
    }
    for key in ("train_file", "validation_file"):
        keys[key] = str(MLM / keys[key])
    path = folder / f"{name}.json"
    path.write_text(json.dumps(keys, indent=1))
    run_binary("train", path)
    return folder / name


class ParityTest(unittest.TestCase):
    """A test with a separate folder and comparisons that name the difference."""

    def setUp(self):
        self.folder = scratch_folder(self.addCleanup)

    def train(self, config, name="run", **more):
        return train(self.folder, config, name, **more)

    def assert_relative(self, ours, theirs, tolerance, what):
        difference = abs(ours - theirs)
        if not difference <= tolerance * max(abs(theirs), 1e-12):
            self.fail(f"{what}: ours {ours!r}, theirs {theirs!r}, more than {tolerance:g} apart")

    def train_rows(self, rows, **keys):
        """Trains on rows in their order with a constant rate; returns the run's output folder."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / "rows.jsonl").write_text(text)
        config = {
            "model_name_or_path": str(self.folder / "start"),
            "train_file": str(self.folder / "rows.jsonl"),
            "output_dir": str(self.folder / "run"),
            "cache_dir": str(self.folder / "cache"),
            "train_sampling_strategy": "sequential",
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            **keys,
        }
        path = self.folder / "run.json"
        path.write_text(json.dumps(config))
        run_binary("train", path)
        return Path(config["output_dir"])

    def assert_same_losses(self, run, theirs, tolerance):
        """Compares the losses of each step."""
        mine = [row["loss"] for row in state(run)["log_history"] if "loss" in row]
        self.assertEqual(len(mine), len(theirs))
        for step, (own, other) in enumerate(zip(mine, theirs), 1):
            self.assert_relative(own, other, tolerance, f"step {step}")

    def assert_same_log(self, ours, theirs, first_step=1, family=None):
        """Compares two log_history lists within the documented tolerances. `family`: whose worst deviations
        are appended to the file FINETUNE_DEVIATIONS, if that is set (scripts/bench/models.py)."""
        worst = {}
        for kind in ("loss", "eval_loss"):
            mine, golden = (
                [r for r in log if kind in r and r["step"] >= first_step] for log in (ours, theirs)
            )
            self.assertEqual([r["step"] for r in mine], [r["step"] for r in golden], kind)
            tolerances = {"loss": 1e-3, "eval_loss": 1e-3, "grad_norm": 1e-2, "learning_rate": 1e-4}
            for mine_row, golden_row in zip(mine, golden):
                for key, tolerance in tolerances.items():
                    if key in golden_row:
                        what = f"step {golden_row['step']}: {key}"
                        self.assertIn(key, mine_row, what)
                        self.assert_relative(mine_row[key], golden_row[key], tolerance, what)
                        apart = abs(mine_row[key] - golden_row[key]) / max(abs(golden_row[key]), 1e-12)
                        worst[key] = max(worst.get(key, 0.0), apart)
                self.assertAlmostEqual(mine_row["epoch"], golden_row["epoch"], places=6)
        if family and os.environ.get("FINETUNE_DEVIATIONS"):
            steps = max(row["step"] for row in theirs if "loss" in row)
            line = {"family": family, "steps": steps, **{key: float(f"{worst[key]:.2g}") for key in worst}}
            with open(os.environ["FINETUNE_DEVIATIONS"], "a") as file:
                file.write(json.dumps(line) + "\n")

    def assert_same_weights(self, ours, theirs, tolerance):
        """Compares every tensor within `tolerance`, except key.bias: its true gradient is zero, and Adam
        amplifies noise."""
        names = {n for n in theirs if "key.bias" not in n}
        self.assertEqual(names - set(ours), set())
        for name in sorted(names):
            self.assertEqual(ours[name].shape, theirs[name].shape, name)
            worst = float((ours[name] - theirs[name]).abs().max())
            self.assertLessEqual(worst, tolerance, f"{name}: largest difference {worst:g}")


def state(folder):
    return json.loads((folder / "trainer_state.json").read_text())


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def load_strictly(folder):
    """Loads AutoModelForMaskedLM; fails on a missing, unexpected or mismatched key."""
    from transformers import AutoModelForMaskedLM

    model, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    wrong = {k: list(v) for k, v in info.items() if v}
    if wrong:
        raise AssertionError(f"{folder}: {wrong}")
    return model.eval()
