# SPDX-License-Identifier: MIT
"""Optimizers' files: torch, transformers and bitsandbytes read ours, and we read theirs."""

import importlib.util
import json
import os
import shutil
import unittest

import torch
from make_goldens import make_trainer
from safetensors import safe_open
from safetensors.torch import load_file
from support import MLM, TRAJECTORIES, ParityTest, load_strictly, run_binary, run_for_code, state, weights

LINEAR = {**TRAJECTORIES["linear"]["config"], "weight_decay": 0.1, "max_grad_norm": 0.0}
LINEAR.update(max_steps=8, save_strategy="steps", save_steps=4, logging_steps=1)
HIDDEN_STATE = "__bnb_optimizer_quant_state__"
BITSANDBYTES = importlib.util.find_spec("bitsandbytes") is not None or os.environ.get("CI")


def flat(entry):
    """Returns a parameter's state without bitsandbytes' additional level."""
    return {**{k: v for k, v in entry.items() if k != HIDDEN_STATE}, **entry.get(HIDDEN_STATE, {})}


class OptimizerFiles(ParityTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        shutil.copytree(MLM, self.data)
        self.make_wide_model(self.data / "model")

    @staticmethod
    def make_wide_model(folder):
        """A model with matrices of 4,096 values and more, which bitsandbytes stores in 8 bits."""
        from transformers import RobertaConfig, RobertaForMaskedLM

        config = RobertaConfig.from_pretrained(folder)
        config.hidden_size, config.intermediate_size = 64, 128
        torch.manual_seed(0)
        RobertaForMaskedLM(config).save_pretrained(folder)

    def ours(self, optim, name="ours", **more):
        return self.train(
            {**LINEAR, "model_name_or_path": str(self.data / "model"), "optim": optim},
            name,
            **more,
        )

    def trainer(self, optim, optim_args=None, **more):
        trainer = make_trainer(LINEAR, self.data, self.folder / "theirs", **more)
        trainer.args.optim, trainer.args.optim_args = optim, optim_args
        return trainer

    def assert_peer_takes_it(self, optim, optim_args=None):
        """Our file loads into the peer's optimizer with every value, and its Trainer resumes."""
        options = {"optim_args": optim_args} if optim_args else {}
        output = self.ours(optim, **options)
        half = output / "checkpoint-4"
        saved = torch.load(half / "optimizer.pt", weights_only=True)
        trainer = self.trainer(optim, optim_args)
        optimizer = trainer.create_optimizer()
        optimizer.load_state_dict(saved)
        self.assert_same_state(saved, optimizer.state_dict())

        resumed = self.trainer(optim, optim_args)
        resumed.train(resume_from_checkpoint=str(half))
        self.assertEqual(resumed.state.global_step, 8)
        self.assert_same_log(state(output)["log_history"], resumed.state.log_history, 5)
        return output

    def assert_same_state(self, ours, theirs):
        self.assertEqual(set(ours["state"]), set(theirs["state"]))
        for key, entry in ours["state"].items():
            mine, golden = flat(entry), flat(theirs["state"][key])
            for name in set(golden) | set(mine):
                # the last bit of torch.linspace differs between processors
                if name.startswith("qmap"):
                    torch.testing.assert_close(mine[name], golden[name], rtol=1e-6, atol=0)
                elif torch.is_tensor(mine[name]):
                    self.assertEqual(mine[name].dtype, golden[name].dtype, name)
                    self.assertTrue(torch.equal(mine[name], golden[name]), (key, name))
                else:
                    self.assertEqual(mine[name], golden[name], (key, name))
        for mine, golden in zip(ours["param_groups"], theirs["param_groups"], strict=True):
            self.assertEqual(mine["params"], golden["params"])
            self.assertEqual(set(golden) - set(mine), set())

    def assert_we_take_theirs(self, optim, optim_args=None):
        """A checkpoint of the Trainer resumes here as it does there."""
        trainer = self.trainer(optim, optim_args, save_strategy="steps", save_steps=4)
        trainer.train()
        half = self.folder / "theirs" / "checkpoint-4"
        options = {"optim_args": optim_args} if optim_args else {}
        output = self.ours(optim, resume_from_checkpoint=str(half), **options)
        self.assert_same_log(state(output)["log_history"], trainer.state.log_history, 5)
        golden = {n: p.detach() for n, p in trainer.model.named_parameters()}
        self.assert_same_weights(weights(output), golden, 2e-3)
        return half

    def test_adafactor_of_ours(self):
        self.assert_peer_takes_it("adafactor")

    def test_adafactor_of_theirs(self):
        self.assert_we_take_theirs("adafactor")

    def test_sgd_of_ours(self):
        self.assert_peer_takes_it("sgd", "momentum=0.9")

    def test_sgd_of_theirs(self):
        self.assert_we_take_theirs("sgd", "momentum=0.9")

    @unittest.skipUnless(BITSANDBYTES, "bitsandbytes is not installed")
    def test_bitsandbytes_of_ours(self):
        output = self.assert_peer_takes_it("adamw_bnb_8bit")
        saved = torch.load(output / "checkpoint-4" / "optimizer.pt", weights_only=True)
        kinds = [entry["state1"].dtype for entry in saved["state"].values()]
        self.assertIn(torch.uint8, kinds)
        self.assertIn(torch.float32, kinds)

    @unittest.skipUnless(BITSANDBYTES, "bitsandbytes is not installed")
    def test_bitsandbytes_of_theirs(self):
        half = self.assert_we_take_theirs("adamw_bnb_8bit")
        for optim, line in [
            ("adamw_torch", "optimizer states: adamw_8bit -> adamw (32 bits), converted"),
            ("adamw_companded_8bit", "optimizer states: adamw_8bit -> adamw_companded_8bit"),
        ]:
            config = json.loads((self.folder / "ours.json").read_text())
            config.update(optim=optim, output_dir=str(self.folder / optim))
            path = self.folder / f"{optim}.json"
            path.write_text(json.dumps(config))
            done = run_for_code("train", path)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertIn(line, done.stderr)
            self.assertIn(str(half), done.stderr)

    def test_states_that_transformers_does_not_know(self):
        output = self.ours("adamw_companded_8bit", param_dtype="bfloat16+int8")
        half = output / "checkpoint-4"
        self.assertFalse((half / "optimizer.pt").exists())
        with safe_open(half / "optimizer.safetensors", framework="pt") as file:
            self.assertEqual(file.metadata()["optimizer"], "adamw_companded_8bit")
            names = set(file.keys())
        kept, exported = load_file(half / "model.safetensors"), weights(output)
        for name, tensor in kept.items():
            self.assertEqual(tensor.dtype, torch.bfloat16, name)
            self.assertIn(f"{name}.correction", names)
            self.assertEqual(exported[name].dtype, torch.float32, name)
        load_strictly(half)
        load_strictly(output)
        resumed = self.trainer("adamw_torch")
        resumed.train(resume_from_checkpoint=str(half))
        self.assertEqual(resumed.state.global_step, 8)

    def test_the_loss_scale(self):
        output = self.ours("adamw_torch", fp16=True)
        saved = torch.load(output / "checkpoint-4" / "scaler.pt", weights_only=True)
        scaler = torch.amp.GradScaler("cpu")
        self.assertEqual(set(saved), set(scaler.state_dict()))
        scaler.load_state_dict(saved)
        self.assertEqual(scaler.state_dict(), saved)
        self.assertEqual({k: type(v) for k, v in saved.items()}["_growth_tracker"], int)

    def test_verify_resume(self):
        self.ours("adamw_companded_8bit", param_dtype="bfloat16+int8")
        config = json.loads((self.folder / "ours.json").read_text())
        path = self.folder / "verify.json"
        path.write_text(json.dumps(config))
        run_binary("verify-resume", path, "--steps", 6)
