# SPDX-License-Identifier: MIT
"""Compares gpt-oss with experts in MXFP4 with transformers, which unpacks the same folder on a CPU, and with PEFT."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file
from support import TEXT, ParityTest, run_binary, run_for_code, state
from test_clm import BLOCK, BOTH, Samples, blocks_of, families_of, make_base, mean_loss

EXPERTS = ("gate_up_proj", "down_proj")
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
QUANTIZATION = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
}


def quantized(weight):
    """Blocks and scales of [E, in, out], by OCP's rule: the largest value of a block is at most 6 times its scale."""
    rows = weight.transpose(1, 2).unflatten(-1, (-1, 32))
    powers = torch.floor(torch.log2(rows.abs().amax(-1).clamp_min(1e-30))) - 2
    scaled = rows / torch.exp2(powers).unsqueeze(-1)
    codes = (scaled.abs().unsqueeze(-1) - VALUES).abs().argmin(-1) + 8 * (scaled < 0)
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (powers + 127).to(torch.uint8)


def quantize_folder(folder, shards=1):
    """Rewrites a folder as OpenAI's are."""
    tensors = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    for name in [name for name in tensors if name.endswith(EXPERTS)]:
        tensors[name + "_blocks"], tensors[name + "_scales"] = quantized(tensors.pop(name).float())
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    owners = {name: files[i % shards] for i, name in enumerate(names)}
    for file in files:
        save_file(
            {name: tensors[name].contiguous() for name in names if owners[name] == file}, folder / file, metadata={"format": "pt"}
        )
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": owners}))
    config = json.loads((folder / "config.json").read_text())
    config |= {"quantization_config": QUANTIZATION, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))


class Mxfp4(ParityTest):
    def setUp(self):
        super().setUp()
        if "gpt_oss" not in families_of(["gpt_oss"]):
            self.skipTest("another family")
        self.base = make_base("gpt_oss", self.folder / "base")
        quantize_folder(self.base, shards=2)

    def configured(self, name, **more):
        config = {
            "task": "clm",
            "model_name_or_path": str(self.base),
            "train_file": str(TEXT / "lighthouse.txt"),
            "validation_file": str(TEXT / "lighthouse-valid.txt"),
            "block_size": BLOCK,
            "output_dir": str(self.folder / name),
            "cache_dir": str(self.folder / "cache"),
            **BOTH,
            **more,
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=1))
        return path

    ADAPTER = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "learning_rate": 1e-2}

    def theirs(self):
        from transformers import AutoModelForCausalLM, Mxfp4Config

        return AutoModelForCausalLM.from_pretrained(
            self.base, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.float32
        )

    def test_an_adapter_trains_on_experts_that_stay_in_four_bits(self):
        from peft import PeftModel

        path = self.configured("adapter", **self.ADAPTER)
        run_binary("train", path)
        losses = [row["eval_loss"] for row in state(self.folder / "adapter")["log_history"] if "eval_loss" in row]
        before = mean_loss(self.theirs())
        model = PeftModel.from_pretrained(self.theirs(), self.folder / "adapter")
        self.assert_relative(mean_loss(model), losses[-1], 1e-4, "loss")
        self.assertLess(losses[-1], before)
        # Merged, it is what transformers unpacks and PEFT merges.
        run_binary("export", self.folder / "adapter", self.folder / "merged", "--outtype", "f32", "--verify", "logits")
        merged = load_file(self.folder / "merged" / "model.safetensors")
        golden = model.merge_and_unload().state_dict()
        self.assertEqual(set(merged), set(golden))
        for name, value in golden.items():
            exact = name.endswith(EXPERTS)
            torch.testing.assert_close(merged[name], value, rtol=0, atol=0 if exact else 1e-6)
        self.assertNotIn("quantization_config", json.loads((self.folder / "merged" / "config.json").read_text()))

    def test_resumes_to_equal_bits(self):
        for more in ({}, {"load_in_4bit": True, "bf16": True}):
            run_binary("verify-resume", self.configured("resumed", **self.ADAPTER | more), "--steps", 6)

    def test_whole_weights_start_from_what_the_codes_mean(self):
        from transformers import Trainer, TrainingArguments

        run_binary("train", self.configured("whole", **BOTH | {"max_steps": 4, "save_steps": 2}))
        settings = {**BOTH, "max_steps": 4, "save_strategy": "no", "disable_tqdm": True}
        arguments = TrainingArguments(output_dir=str(self.folder / "theirs"), **settings)
        model = self.theirs()
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Samples(blocks_of(TEXT / "lighthouse.txt")),
            eval_dataset=Samples(blocks_of(TEXT / "lighthouse-valid.txt")),
        )
        trainer.train()
        self.assert_same_log(state(self.folder / "whole")["log_history"], trainer.state.log_history)
        config = json.loads((self.folder / "whole" / "config.json").read_text())
        self.assertNotIn("quantization_config", config)

    def damage(self, change):
        """Returns what an adapter's run says of a folder in which this was changed."""
        folder = self.folder / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        for file in folder.glob("*.safetensors"):
            tensors = load_file(file)
            for name in list(tensors):
                change(tensors, name)
            save_file(tensors, file, metadata={"format": "pt"})
        index = folder / "model.safetensors.index.json"
        index.unlink()
        owners = {name: file.name for file in folder.glob("*.safetensors") for name in load_file(file)}
        index.write_text(json.dumps({"metadata": {}, "weight_map": owners}))
        done = run_for_code("train", self.configured("bad", model_name_or_path=str(folder), **self.ADAPTER))
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_refuses_damaged_codes(self):
        one = "model.layers.0.mlp.experts.down_proj"

        def without(end):
            return lambda tensors, name: tensors.pop(name) if name == one + end else None

        def changed(end, function):
            def change(tensors, name):
                if name == one + end:
                    tensors[name] = function(tensors[name]).contiguous()

            return change

        self.assertIn("down_proj_scales", self.damage(without("_scales")))
        self.assertIn("down_proj_blocks' is there", self.damage(without("_blocks")))
        self.assertIn("blocks of MXFP4", self.damage(changed("_blocks", lambda x: x[..., :15])))
        self.assertIn("config.json asks for", self.damage(self.both(one, lambda x: x[:, :, :1])))
        self.assertIn("scales of these blocks", self.damage(changed("_scales", lambda x: x[:, :-1])))
        self.assertIn("beyond what bfloat16 holds", self.damage(changed("_scales", lambda x: x.fill_(255))))
        self.assertIn("scales of these blocks", self.damage(changed("_scales", lambda x: x.float())))

    @staticmethod
    def both(one, function):
        def change(tensors, name):
            if name in (one + "_blocks", one + "_scales"):
                tensors[name] = function(tensors[name]).contiguous()

        return change

    def test_refuses_a_configuration_of_other_weights(self):
        path = self.base / "config.json"
        config = json.loads(path.read_text())
        del config["quantization_config"]
        path.write_text(json.dumps(config))
        done = run_for_code("train", self.configured("bad", **self.ADAPTER))
        self.assertIn("no quantization_config", done.stderr)
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    import unittest

    unittest.main()
