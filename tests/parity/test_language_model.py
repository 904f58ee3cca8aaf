# SPDX-License-Identifier: MIT
"""The language model in a folder of a model for images and text, as transformers' AutoModelForCausalLM takes it:
trained alone, its adapter merged into the whole."""

import shutil
import warnings

import torch
from safetensors.torch import load_file
from support import ROOT, ParityTest, run_binary, run_for_code

TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"
TEXT = dict(
    vocab_size=600, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=8, initializer_range=0.1, bos_token_id=0, eos_token_id=2, pad_token_id=1,
)  # fmt: skip
DELTA = dict(
    linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
    layer_types=["linear_attention", "full_attention"],
)  # fmt: skip
GEMMA4 = dict(
    num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, global_head_dim=12, num_kv_shared_layers=2, final_logit_softcapping=30.0,
    hidden_size_per_layer_input=8, vocab_size_per_layer_input=600, use_double_wide_mlp=True,
)  # fmt: skip
VISION4 = dict(
    model_type="gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
    num_key_value_heads=2, patch_size=4, pooling_kernel_size=2, position_embedding_size=64,
)  # fmt: skip
SIGLIP = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
# The language model, what its configuration has apart from TEXT, the vision part, and what else the whole says.
WHOLES = {
    "qwen3_5": ("qwen3_5_text", DELTA, dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=32, patch_size=4), {}),
    "gemma3": ("gemma3_text", {"query_pre_attn_scalar": 8}, {**SIGLIP, "model_type": "siglip_vision_model"}, {"mm_tokens_per_image": 4}),
    "gemma4": ("gemma4_text", GEMMA4, VISION4, {"audio_config": None}),
    "mistral3": ("mistral", {}, {**SIGLIP, "model_type": "pixtral", "head_dim": 8}, {}),
    "lfm2_vl": ("lfm2", {"layer_types": ["conv", "full_attention"], "block_multiple_of": 16}, {**SIGLIP, "model_type": "siglip2_vision_model"}, {}),
}  # fmt: skip
PARTS_OF_IMAGES = (
    "model.visual.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.embed_vision.",
)


def make_model(kind, folder):
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(5)
    text, own, vision, more = WHOLES[kind]
    config = AutoConfig.for_model(kind, text_config={**TEXT, **own, "model_type": text}, vision_config=vision, **more)
    AutoModelForImageTextToText.from_config(config).save_pretrained(folder)
    for path in TOKENIZER.glob("*.json"):
        shutil.copy(path, folder)


class LanguageModel(ParityTest):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text("the lamp of the lighthouse is bright\n" * 200)

    def for_each_kind(self):
        for kind in WHOLES:
            self.model = self.folder / kind
            make_model(kind, self.model)
            yield kind

    def train_text(self, name, **more):
        keys = {
            "task": "clm",
            "model_name_or_path": self.model,
            "train_file": self.folder / "text.txt",
            "output_dir": self.folder / f"{self.model.name}-{name}",
            "max_steps": 3,
            "max_seq_length": 32,
            "learning_rate": 0.01,
            "use_cpu": "true",
            **more,
        }
        done = run_for_code("train", *(part for key, value in keys.items() for part in (f"--{key}", value)))
        self.assertEqual(done.returncode, 75 if "stop_at_step" in more else 0, done.stderr)
        return self.folder / f"{self.model.name}-{name}"

    def test_whole_weights_are_those_of_the_language_model_class(self):
        from transformers import AutoModelForCausalLM

        names = {
            "gemma3": "Gemma3ForCausalLM",
            "gemma4": "Gemma4ForCausalLM",
            "lfm2_vl": "Lfm2ForCausalLM",
            "mistral3": "MistralForCausalLM",
            "qwen3_5": "Qwen3_5ForCausalLM",
        }
        for kind in self.for_each_kind():
            out = self.train_text("out")
            model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
            self.assertEqual({k: v for k, v in info.items() if v}, {})
            self.assertEqual(type(model).__name__, names[kind])

    def test_an_adapter_is_merged_into_the_whole(self):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

        for kind in self.for_each_kind():
            out = self.train_text("out", use_peft="true", lora_r=4)
            run_binary("export", out, self.folder / f"{kind}-merged")
            whole, info = AutoModelForImageTextToText.from_pretrained(self.folder / f"{kind}-merged", output_loading_info=True)
            self.assertEqual({k: v for k, v in info.items() if v}, {})
            before = load_file(self.model / "model.safetensors")
            after = load_file(self.folder / f"{kind}-merged" / "model.safetensors")
            self.assertEqual(set(before), set(after))
            of_images = [name for name in before if name.startswith(PARTS_OF_IMAGES)]
            self.assertGreater(len(of_images), 10)
            for name in of_images:
                self.assertTrue(torch.equal(before[name], after[name]), name)
            # The class that has the language model for PEFT; it warns of tensors that it does not find.
            kinds = AutoModelForImageTextToText if kind in ("lfm2_vl", "mistral3") else AutoModelForCausalLM
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Found missing adapter keys")
                adapted = PeftModel.from_pretrained(kinds.from_pretrained(self.model), out)
            theirs = adapted.merge_and_unload().eval()
            ids = torch.arange(4, 24).view(2, 10)
            with torch.no_grad():
                ours, wanted = whole.eval()(input_ids=ids).logits, theirs(input_ids=ids).logits
                base = kinds.from_pretrained(self.model).eval()(input_ids=ids).logits
            self.assertLess((ours - wanted).abs().max().item(), 1e-5)  # float32 sums in another order
            self.assertGreater((base - wanted).abs().max().item(), 1e-3)

    def test_an_adapter_resumes_to_the_same_bits(self):
        for kind in self.for_each_kind():
            keys = dict(use_peft="true", lora_r=4, save_steps=1, lora_modules_to_save="[norm]")
            whole = self.train_text("unbroken", **keys)
            self.train_text("resumed", stop_at_step=1, **keys)
            resumed = self.train_text("resumed", **keys)
            for name, value in load_file(whole / "adapter_model.safetensors").items():
                self.assertTrue(torch.equal(value, load_file(resumed / "adapter_model.safetensors")[name]), f"{kind}: {name}")
            best = dict(validation_file=self.folder / "text.txt", eval_strategy="steps", eval_steps=1, greater_is_better="true")
            self.train_text("best", load_best_model_at_end="true", metric_for_best_model="eval_loss", **best, **keys)

    def test_modules_that_peft_saves_are_those_of_the_language_model(self):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

        for kind in self.for_each_kind():
            out = self.train_text("saved", use_peft="true", lora_target_modules="[q_proj]", lora_modules_to_save="[norm]")
            kinds = AutoModelForImageTextToText if kind in ("lfm2_vl", "mistral3") else AutoModelForCausalLM
            PeftModel.from_pretrained(kinds.from_pretrained(self.model), out)

    def test_layers_may_have_their_names_in_the_whole(self):
        for kind in self.for_each_kind():
            module = "layers.1.self_attn.q_proj"
            whole = "model." if kind == "qwen3_5" else "model.language_model."
            folders = [
                self.train_text(name, use_peft="true", lora_target_modules=f"[{module}]")
                for name, module in (("short", module), ("long", whole + module))
            ]
            texts = [(folder / "adapter_config.json").read_text() for folder in folders]
            self.assertEqual(*texts)
            self.assertIn(whole + module, texts[0])

    def test_gguf_of_a_whole_holds_its_language_model(self):
        for kind in self.for_each_kind():
            run_binary("export", self.model, self.folder / f"{kind}.gguf", "--outtype", "f32", "--verify", "logits")
            run_binary("predict", self.model, "--text", "the lamp", "--max_new_tokens", 2)

    def test_gguf_of_an_adapter_holds_the_language_model(self):
        from gguf import GGUFReader

        for kind in self.for_each_kind():
            out = self.train_text("out", use_peft="true", lora_r=4)
            file = self.folder / f"{kind}.gguf"
            run_binary("export", out, file, "--outtype", "f32", "--verify", "logits")
            names = {tensor.name for tensor in GGUFReader(file).tensors}
            self.assertIn(
                {"qwen3_5": "blk.0.ssm_a", "lfm2_vl": "blk.0.shortconv.conv.weight"}.get(kind, "blk.0.attn_k.weight"), names
            )
            self.assertFalse(
                [name for name in names if not name.startswith(("blk.", "output", "token_embd", "per_layer_", "rope_freqs"))]
            )


if __name__ == "__main__":
    import unittest

    unittest.main()
