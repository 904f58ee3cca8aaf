# SPDX-License-Identifier: MIT
"""Writes pipelines.json: what transformers' XLMRobertaTokenizer and BigBirdTokenizer make of
unigram.model, and the tokenizers package of small models of other kinds. These are trained once:
training differs from run to run.

    python tests/data/tokenizer/make_sentencepiece_goldens.py
"""

import json
import pathlib
import random
import tempfile

from make_goldens import texts
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
CLASSES = {"XLMRobertaTokenizer": "sentencepiece.bpe.model", "BigBirdTokenizer": "spiece.model"}
LIMIT = 110


def byte_ranges(text, offsets):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [at[x] for pair in offsets for x in pair]


def sample():
    rng = random.Random(11)
    special = ["[MASK] a", "a  [MASK]b", "<mask> x", "<s>a</s>", "[CLS]x[SEP]", "\u2581a \u2581", "a\r\nb", "\ufb01\uff21"]
    return special + rng.sample([t for t in texts() if t], LIMIT - len(special))


def class_case(name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / CLASSES[name]).write_bytes((HERE / "unigram.model").read_bytes())
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert type(tokenizer).__name__ == name
        rows = []
        for text in sample():
            encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            rows.append([text, encoded["input_ids"], byte_ranges(text, encoded["offset_mapping"]),
                         tokenizer.decode(encoded["input_ids"])])  # fmt: skip
        pair = tokenizer("La suno", "la maro")
        words = [["La"], ["suno,"], ["\u6d77"], [""], [" x "]]
        return dict(
            file=CLASSES[name],
            size=len(tokenizer),
            pair=pair["input_ids"],
            token_types="token_type_ids" in pair,
            special={k: tokenizer.convert_tokens_to_ids(v) for k, v in tokenizer.special_tokens_map.items()},
            words=[[w[0], tokenizer(w, is_split_into_words=True, add_special_tokens=False)["input_ids"]] for w in words],
            rows=rows,
        )


def corpus():
    return [line for line in (HERE / "corpus.txt").read_text().split("\n") if line.strip()]


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=160, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False))  # fmt: skip
    result = json.loads(tokenizer.to_str())
    # Rounded, so that the same file comes out of every run.
    result["model"]["vocab"] = [[token, round(score, 6)] for token, score in result["model"]["vocab"]]
    result["model"]["vocab"] += [[f"<0x{byte:02X}>", -30.0] for byte in range(256)]
    result["model"]["byte_fallback"] = True
    return result


def bpe():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])  # fmt: skip
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=400, limit_alphabet=60, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)],
        show_progress=False))  # fmt: skip
    result = json.loads(tokenizer.to_str())
    result["model"]["byte_fallback"] = True
    result["added_tokens"] = result["added_tokens"][:1]
    return result


def json_case(file):
    tokenizer = Tokenizer.from_str(json.dumps(file))
    rows = []
    for text in sample():
        encoded = tokenizer.encode(text, add_special_tokens=False)
        rows.append([text, encoded.ids, byte_ranges(text, encoded.offsets), tokenizer.decode(encoded.ids, skip_special_tokens=False)])
    return dict(tokenizer=file, rows=rows)


def main():
    cases = {name: class_case(name) for name in CLASSES}
    path = HERE / "pipelines.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for kind, train in (("Unigram", unigram), ("BPE", bpe)):
        cases[kind] = json_case(known[kind]["tokenizer"] if kind in known else train())
    text = json.dumps(cases, separators=(",", ":")).replace("],[", "],\n[")
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
