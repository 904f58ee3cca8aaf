#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists the argument names of TRL, PEFT, transformers and Unsloth: tests/fixtures/config/trainer_keys.txt.

    list_trainer_keys.py [--from FOLDER...] [--write | --check]

Reads the packages' sources without importing them: in each FOLDER (unpacked wheels), then those that this Python
has installed. A package that is in neither place keeps its lines of the committed list. Without an option, prints
the list; --check fails and prints the difference if the committed list is not the same.
"""

import argparse
import ast
import difflib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "tests/fixtures/config/trainer_keys.txt"
# Package: its file and a class, whose annotated fields count, or "Class.method", whose parameters do.
SOURCES = {
    "transformers": [
        ("training_args.py", "TrainingArguments"),
        ("utils/quantization_config.py", "BitsAndBytesConfig.__init__"),
    ],
    "trl": [
        ("trainer/sft_config.py", "SFTConfig"),
        ("trainer/base_config.py", "_BaseConfig"),
        ("trainer/dpo_config.py", "DPOConfig"),
        ("trainer/kto_config.py", "KTOConfig"),
        ("trainer/grpo_config.py", "GRPOConfig"),
        ("trainer/reward_config.py", "RewardConfig"),
        ("trainer/rloo_config.py", "RLOOConfig"),
        ("trainer/model_config.py", "ModelConfig"),
        ("scripts/utils.py", "ScriptArguments"),
        ("scripts/utils.py", "DatasetConfig"),
        ("scripts/utils.py", "DatasetMixtureConfig"),
    ],
    "peft": [
        ("config.py", "PeftConfigMixin"),
        ("config.py", "PeftConfig"),
        ("tuners/lora/config.py", "LoraConfig"),
    ],
    "unsloth": [
        ("models/loader.py", "FastLanguageModel.from_pretrained"),
        ("models/llama.py", "FastLlamaModel.get_peft_model"),
        ("models/vision.py", "FastBaseModel.get_peft_model"),
        ("trainer.py", "UnslothTrainingArguments.__init__"),
    ],
}  # fmt: skip
NO_KEYS = {"self", "cls", "model", "args", "kwargs"}


def members(tree, name):
    """The definitions of a class, those below `if` and `try` too; None if there is no such class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node.body
    return None


def names_in(path, what):
    cls, _, method = what.partition(".")
    body = members(ast.parse(path.read_text(encoding="utf-8")), cls)
    if body is None:
        sys.exit(f"{path} has no class {cls}: update SOURCES in this script")
    if not method:
        return {node.target.id for node in body
                if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)}  # fmt: skip
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == method:
            arguments = node.args
            return {a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs} - NO_KEYS
    sys.exit(f"{path} has no {what}: update SOURCES in this script")


def find_package(name, folders):
    """The package's folder and version; None if it is not there."""
    for folder in folders:
        if (folder / name).is_dir():
            infos = sorted(folder.glob(f"{name}-*.dist-info"))
            return folder / name, infos[-1].name[len(name) + 1 : -len(".dist-info")] if infos else "?"
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]), importlib.metadata.version(name)


def committed():
    """The lines of the committed list of each package."""
    blocks, block = {}, None
    for line in LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []:
        if line.startswith("## "):
            block = blocks.setdefault(line.split()[1], [])
        if block is not None and line:
            block.append(line)
    return blocks


def block_of(name, folder, version):
    origins = {}
    for file, what in SOURCES[name]:
        for key in names_in(folder / file, what):
            origins.setdefault(key, []).append(what.replace(".__init__", ""))
    rows = [f"{key} {' '.join(dict.fromkeys(origins[key]))}" for key in sorted(origins) if not key.startswith("_")]
    return [f"## {name} {version}", *rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folders", type=Path, nargs="+", default=[], help="folders of unpacked wheels")
    parser.add_argument("--write", action="store_true", help="replace the committed list")
    parser.add_argument("--check", action="store_true", help="fail if the committed list differs")
    args = parser.parse_args()
    kept = committed()
    lines = ["# Written by scripts/list_trainer_keys.py: a name, and where it is an argument."]
    for name in SOURCES:
        found = find_package(name, args.folders)
        block = block_of(name, *found) if found else kept.get(name)
        if block is None:
            sys.exit(f"{name} is not installed, and no folder of --from has it")
        lines += ["", *block]
    text = "\n".join(lines) + "\n"
    if args.write:
        LIST.write_text(text, encoding="utf-8")
    elif args.check:
        before = LIST.read_text(encoding="utf-8").splitlines()
        difference = list(difflib.unified_diff(before, text.splitlines(), str(LIST), "the packages", n=0, lineterm=""))
        if difference:
            sys.exit("\n".join(difference))
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
