# SPDX-License-Identifier: MIT
"""The language model in a folder of a model for images and text, as transformers' AutoModelForCausalLM takes it:
trained alone, its adapter merged into the whole."""

import shutil

import torch
from safetensors.torch import load_file
from support import ROOT, ParityTest, run_binary

TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"
VISION = "model.visual."


def make_model(folder):
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig

    torch.manual_seed(5)
    text = Qwen3_5TextConfig(
        vocab_size=600,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention"],
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    vision = Qwen3_5VisionConfig(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, patch_size=4)
    config = Qwen3_5Config(text_config=text.to_dict(), vision_config=vision.to_dict())
    Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    for path in TOKENIZER.glob("*.json"):
        shutil.copy(path, folder)


class LanguageModel(ParityTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        make_model(self.model)
        (self.folder / "text.txt").write_text("the lamp of the lighthouse is bright\n" * 200)

    def train_text(self, name, **more):
        keys = {
            "task": "clm",
            "model_name_or_path": self.model,
            "train_file": self.folder / "text.txt",
            "output_dir": self.folder / name,
            "max_steps": 3,
            "max_seq_length": 32,
            "learning_rate": 0.01,
            "use_cpu": "true",
            **more,
        }
        run_binary("train", *(part for key, value in keys.items() for part in (f"--{key}", value)))
        return self.folder / name

    def test_whole_weights_are_those_of_the_language_model_class(self):
        from transformers import AutoModelForCausalLM

        out = self.train_text("out")
        model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
        self.assertEqual({k: v for k, v in info.items() if v}, {})
        self.assertEqual(type(model).__name__, "Qwen3_5ForCausalLM")

    def test_an_adapter_is_merged_into_the_whole(self):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, Qwen3_5ForConditionalGeneration

        out = self.train_text("out", use_peft="true", lora_r=4)
        run_binary("export", out, self.folder / "merged")
        whole, info = Qwen3_5ForConditionalGeneration.from_pretrained(self.folder / "merged", output_loading_info=True)
        self.assertEqual({k: v for k, v in info.items() if v}, {})
        before = load_file(self.model / "model.safetensors")
        after = load_file(self.folder / "merged" / "model.safetensors")
        self.assertEqual(set(before), set(after))
        of_images = [name for name in before if name.startswith(VISION)]
        self.assertGreater(len(of_images), 10)
        for name in of_images:
            self.assertTrue(torch.equal(before[name], after[name]), name)
        base = AutoModelForCausalLM.from_pretrained(self.model)
        theirs = PeftModel.from_pretrained(base, out).merge_and_unload().eval()
        ids = torch.arange(4, 24).view(2, 10)
        with torch.no_grad():
            ours, wanted = whole.eval()(input_ids=ids).logits, theirs(input_ids=ids).logits
        self.assertLess((ours - wanted).abs().max().item(), 1e-5)  # float32 sums in another order

    def test_gguf_of_an_adapter_holds_the_language_model(self):
        from gguf import GGUFReader

        out = self.train_text("out", use_peft="true", lora_r=4)
        run_binary("export", out, self.folder / "m.gguf", "--outtype", "f32", "--verify", "logits")
        names = {tensor.name for tensor in GGUFReader(self.folder / "m.gguf").tensors}
        self.assertIn("blk.0.ssm_a", names)
        self.assertFalse([name for name in names if not name.startswith(("blk.", "output", "token_embd"))])


if __name__ == "__main__":
    import unittest

    unittest.main()
