# SPDX-License-Identifier: MIT
"""Compares Unigram, SentencePiece's rules and byte fallback with transformers' classes and Hugging Face's
tokenizers: ids, offsets and texts, on models that are trained here."""

import base64
import importlib.util
import io
import json
import random
import unittest

from support import TEXT, ParityTest, run_binary
from test_tokenizer import REAL_TEXTS, fuzzed_lines

LIGHTHOUSE = TEXT / "lighthouse.txt"
REAL = ("japanese.txt", "jcommonsenseqa-valid.jsonl", "esperanto-valid.txt", "shakespeare.txt")
CLASSES = {
    "XLMRobertaTokenizer": ("sentencepiece.bpe.model", {}),
    "BigBirdTokenizer": (
        "spiece.model",
        dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3, control_symbols=["[CLS]", "[SEP]"],
             user_defined_symbols=["[MASK]", "<x>"]),
    ),
    # Named like DeBERTa v3's pieces; [MASK] is added after them.
    "DebertaV2Tokenizer": (
        "spm.model",
        dict(pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
             unk_piece="[UNK]", user_defined_symbols=["<x>"]),
    ),
}  # fmt: skip
TRAPS = [
    "<mask>", "[MASK]", "<x>", "[CLS]", "</s>", "▁", "▁▁", " ", "  ", "ﬁ", "Ａ", "①", "㍿", "ｶﾞ", "가", "\u1100\u1161",
    "e\u0301", "\u0600", "\r\n", "\t", "\u00ad", "\ufeff", "\u200b", "\u3000", "नमस्ते", "שלום", "👩\u200d👩\u200d👧", "🇯🇵",
    "日本", "語", "…", "™", "½", "ſ", "ß", "\u0344", "\u1e9b\u0323", "\u0958", "\u0e33", "\u2126", "lamp", "the", "000",
]  # fmt: skip


def traps(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        # A carriage return at the end would belong to the line ending.
        line = "".join(rng.choice(TRAPS) for _ in range(rng.randint(1, 9)))
        yield line.replace("\n", " ").rstrip("\r")


def real_lines():
    for name in REAL:
        path = REAL_TEXTS / name
        if path.exists():
            yield from path.read_text().splitlines()[:1500]


def train_model(**options):
    """Trains a Unigram model with the NFKC rules, as SentencePiece serialises it."""
    import sentencepiece

    extra = [line for line in real_lines() if 0 < len(line) < 1000][::5]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LIGHTHOUSE.read_text().splitlines() + extra + TRAPS),
        model_writer=model, vocab_size=2500 if extra else 600, hard_vocab_limit=False,
        num_threads=1, minloglevel=2, **options,
    )  # fmt: skip
    return model.getvalue()


def charsmap(model):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def encode(folder, lines, *options):
    text = "".join(x + "\n" for x in lines).encode()
    said = run_binary("tokenizer", "encode", "--tokenizer", folder, "--offsets", *options, stdin=text)
    return [json.loads(line) for line in said.decode().split("\n")[:-1]]


@unittest.skipUnless(importlib.util.find_spec("sentencepiece"), "sentencepiece is not installed")
class SentencePieceTest(ParityTest):
    def assert_same(self, folder, lines, theirs):
        """`theirs` returns (ids, offsets) of a line."""
        ours = encode(folder, lines)
        self.assertEqual(len(ours), len(lines))
        for line, mine in zip(lines, ours):
            ids, offsets = theirs(line)
            if mine["input_ids"] != ids:
                self.fail(f"{line!r}: ours {mine['input_ids']}, theirs {ids}")
            offsets = [list(x) for x in offsets]
            if mine["offset_mapping"] != offsets:
                self.fail(f"{line!r}: ours {mine['offset_mapping']}, theirs {offsets}")

    def all_lines(self):
        return [*fuzzed_lines(3000, seed=31), *traps(3000, seed=32), *real_lines(), "", " ", "a"]


class Classes(SentencePieceTest):
    """A folder with only a model, and one saved by transformers; tests are added below."""

    def load(self, name, saved=False):
        from transformers import AutoTokenizer

        file, options = CLASSES[name]
        folder = self.folder / "model"
        folder.mkdir()
        (folder / file).write_bytes(train_model(**options))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.assertEqual(type(tokenizer).__name__, name)
        if saved:
            folder = self.folder / "saved"
            tokenizer.save_pretrained(folder)
            self.assertTrue((folder / "tokenizer.json").exists())
            tokenizer = AutoTokenizer.from_pretrained(folder)
        return folder, tokenizer

    def check(self, name, saved):
        folder, tokenizer = self.load(name, saved)

        def theirs(line):
            row = tokenizer(line, add_special_tokens=False, return_offsets_mapping=True)
            return row["input_ids"], row["offset_mapping"]

        self.assert_same(folder, self.all_lines(), theirs)

    def check_pairs(self, name):
        folder, tokenizer = self.load(name)
        rng = random.Random(33)
        lines = [x.replace("\t", " ") for x in traps(200, seed=34)]
        pairs = [(x, rng.choice(lines)) for x in lines]
        ours = encode(folder, [f"{a}\t{b}" for a, b in pairs], "--pair", "--add_special_tokens")
        for (a, b), mine in zip(pairs, ours):
            row = tokenizer(a, b)
            self.assertEqual(mine["input_ids"], row["input_ids"], (a, b))
            types = row.get("token_type_ids", [0] * len(mine["input_ids"]))
            self.assertEqual(mine["token_type_ids"], types, (a, b))

    def check_decoding(self, name):
        folder, tokenizer = self.load(name)
        rows = [tokenizer(x)["input_ids"] for x in traps(300, seed=35)]
        text = "".join(" ".join(map(str, ids)) + "\n" for ids in rows).encode()
        for options in ((), ("--skip_special_tokens",)):
            said = run_binary("tokenizer", "decode", "--tokenizer", folder, *options, stdin=text)
            expected = [tokenizer.decode(x, skip_special_tokens=bool(options)) for x in rows]
            self.assertEqual(said.decode().split("\n")[:-1], expected)


def add_class(name):
    short = {"X": "xlm_roberta", "B": "big_bird", "D": "deberta_v2"}[name[0]]
    checks = {
        f"test_{short}_model": lambda self: self.check(name, saved=False),
        f"test_{short}_saved_by_transformers": lambda self: self.check(name, saved=True),
        f"test_{short}_pairs": lambda self: self.check_pairs(name),
        f"test_{short}_decoding": lambda self: self.check_decoding(name),
    }
    for key, check in checks.items():
        setattr(Classes, key, check)


for class_name in CLASSES:
    add_class(class_name)


class Files(SentencePieceTest):
    """tokenizer.json as written by the tokenizers package, without a class."""

    def check(self, file):
        from tokenizers import Tokenizer

        folder = self.folder / "tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(file))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

        def theirs(line):
            encoding = tokenizer.encode(line, add_special_tokens=False)
            return encoding.ids, encoding.offsets

        self.assert_same(folder, self.all_lines(), theirs)

    def unigram(self):
        from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=1500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        )
        tokenizer.train_from_iterator(LIGHTHOUSE.read_text().splitlines() + TRAPS, trainer)
        return json.loads(tokenizer.to_str())

    def test_unigram_of_tokenizers_own_trainer(self):
        self.check(self.unigram())

    def test_unigram_with_rules_and_byte_fallback(self):
        file = self.unigram()
        file["model"]["byte_fallback"] = True
        file["model"]["vocab"] += [[f"<0x{b:02X}>", -20 - b / 7] for b in range(256)]
        file["normalizer"] = dict(type="Sequence", normalizers=[
            dict(type="Precompiled", precompiled_charsmap=charsmap(train_model())),
            dict(type="Strip", strip_left=False, strip_right=True),
            dict(type="Replace", pattern=dict(Regex=" {2,}"), content="▁"),
        ])  # fmt: skip
        self.check(file)

    def bpe(self, **options):
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        bytes_too = [f"<0x{b:02X}>" for b in range(256)]
        keys = ("continuing_subword_prefix", "end_of_word_suffix")
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **options))
        trainer = trainers.BpeTrainer(
            vocab_size=1500, limit_alphabet=90, special_tokens=["<unk>"] + bytes_too,
            show_progress=False, **{k: v for k, v in options.items() if k in keys},
        )  # fmt: skip
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.train_from_iterator(LIGHTHOUSE.read_text().splitlines(), trainer)
        file = json.loads(tokenizer.to_str())
        file["added_tokens"] = file["added_tokens"][:1]
        return file

    def test_bpe_with_byte_fallback(self):
        for fuse_unk in (False, True):
            with self.subTest(fuse_unk=fuse_unk):
                self.setUp()
                file = self.bpe(fuse_unk=fuse_unk)
                file["model"]["byte_fallback"] = True
                # One byte has no token, so some characters are still unknown.
                del file["model"]["vocab"]["<0xE3>"]
                file["pre_tokenizer"] = None
                file["normalizer"] = dict(type="Sequence", normalizers=[
                    dict(type="Prepend", prepend="▁"),
                    dict(type="Replace", pattern=dict(String=" "), content="▁"),
                ])  # fmt: skip
                self.check(file)

    def test_bpe_with_a_prefix(self):
        self.check(self.bpe(continuing_subword_prefix="##"))

    def test_bpe_with_a_suffix(self):
        self.check(self.bpe(end_of_word_suffix="</w>", fuse_unk=True))

    def test_bpe_that_ignores_its_merges(self):
        file = self.bpe()
        file["model"]["ignore_merges"] = True
        file["model"]["vocab"]["keeperkeeper"] = len(file["model"]["vocab"])
        self.check(file)
