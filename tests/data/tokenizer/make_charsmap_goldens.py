# SPDX-License-Identifier: MIT
"""Writes charsmap.json: rules that SentencePiece compiled and what the tokenizers package's Precompiled
makes of texts whose grapheme clusters matter.

    python tests/data/tokenizer/make_charsmap_goldens.py
"""

import base64
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
RULES = [("a", "R"), ("A", "aa"), ("\u00a9", "(c)"), ("\u1161", "V"), ("\u0915", "k"), ("e\u0301", "\u00e9"),
         ("\u0600", "P"), ("\u00ae\u200d", ""), ("\u0302", ""), ("\r", " "), ("\uff21", "A"), ("\ufb01", "fi"),
         ("\u5d14", "\u2603\u2603\u2603"), ("x\u0323\u0301", "y")]  # fmt: skip
ALPHABET = list("aAe\u00a9\u00ae\r\n \u0301\u0302\u0323\u0600\u06dd\u200d\u200c\u1100\u1161\u11a8\uac00\uac01\u0915\u094d"
                "\u093c\u0903\u0e33\uff21\ufb01\u5d14x\u00ad\U0001f1ef\U0001f1f5\U0001f44d\U0001f3fd\U00016d63\u0d4e\u0ccd")  # fmt: skip


def compile_rules():
    with tempfile.TemporaryDirectory() as scratch:
        rules = pathlib.Path(scratch) / "rules.tsv"
        points = lambda text: " ".join(f"{ord(c):X}" for c in text)
        rules.write_text("".join(f"{points(a)}\t{points(b)}\n" for a, b in RULES))
        prefix = pathlib.Path(scratch) / "m"
        sentencepiece.SentencePieceTrainer.train(
            input=str(HERE / "corpus.txt"), model_prefix=str(prefix), vocab_size=160, minloglevel=2,
            hard_vocab_limit=False, normalization_rule_tsv=str(rules))  # fmt: skip
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(prefix.with_suffix(".model").read_bytes())
        return model.normalizer_spec.precompiled_charsmap


def origins(rules, text):
    """The bytes of `text` that each character of the normalised text comes from."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.normalizer = normalizers.Precompiled(rules)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?m:.)"), "isolated")
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [x for begin, end in tokenizer.encode(text).offsets for x in (at[begin], at[end])]


def main():
    rules = compile_rules()
    normalizer = normalizers.Precompiled(rules)
    rng = random.Random(5)
    texts = ["".join(rng.choice(ALPHABET) for _ in range(rng.randint(1, 6))) for _ in range(1500)]
    cases = [[text, normalizer.normalize_str(text), origins(rules, text)] for text in sorted(set(texts))]
    kept = [case for case in cases if case[0] != case[1]]
    golden = dict(map=base64.b64encode(rules).decode(), cases=rng.sample(kept, 500))
    (HERE / "charsmap.json").write_text(json.dumps(golden, separators=(",", ":")).replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
