# SPDX-License-Identifier: MIT
"""Byte-level BPE: the vocabulary, merges and ids of Hugging Face's tokenizers."""

import functools
import json
import os
import random
import tempfile
from pathlib import Path

from support import ROOT, TEXT, ParityTest, run_binary, scratch_folder

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# Real texts are not part of the project: whoever has the folder compares on them too.
REAL_TEXTS = Path(os.environ.get("FINETUNE_TEST_TEXTS", ROOT.parent / "shared" / "data"))
TEXT_FILES = {
    "lighthouse": TEXT / "lighthouse.txt",
    "esperanto": REAL_TEXTS / "esperanto.txt",
    "esperanto_valid": REAL_TEXTS / "esperanto-valid.txt",
    "shakespeare": REAL_TEXTS / "shakespeare.txt",
    "japanese": REAL_TEXTS / "japanese.txt",
    "jcommonsenseqa_train": REAL_TEXTS / "jcommonsenseqa-train.jsonl",
    "jcommonsenseqa_valid": REAL_TEXTS / "jcommonsenseqa-valid.jsonl",
    "jsts_train": REAL_TEXTS / "jsts-train.jsonl",
    "jsts_valid": REAL_TEXTS / "jsts-valid.jsonl",
    "jsquad_valid": REAL_TEXTS / "jsquad-valid.json",
}
SIZES = (1000, 8000)


@functools.cache
def theirs(files, size):
    """(vocabulary, merges, RobertaTokenizer) as Hugging Face trains them."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train(
        files=[str(f) for f in files],
        vocab_size=size,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    with tempfile.TemporaryDirectory() as scratch:
        vocab, merges = bpe.save_model(scratch)
        tokenizer = RobertaTokenizerFast(vocab=vocab, merges=merges)
        merges = [tuple(x.split(" ")) for x in Path(merges).read_text().split("\n")[1:] if x]
        return json.loads(Path(vocab).read_text()), merges, tokenizer


def encode(folder, text, *options):
    """One list of ids for each line of `text`."""
    said = run_binary("tokenizer", "encode", "--tokenizer", folder, *options, stdin=text).decode()
    lines = said.split("\n")
    assert lines.pop() == "", "the last line ends with a newline"
    return [[int(x) for x in line.split()] for line in lines]


def split_lines(text):
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [x.decode() for x in lines]


def fuzzed_lines(count, seed):
    """Lines of every kind of character that a pre-tokeniser could take for another kind."""
    rng = random.Random(seed)
    ranges = [
        (0x20, 0x7E),
        (0x20, 0x7E),
        (0x01, 0x1F),
        (0x7F, 0xA0),
        (0xA1, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x52F),
        (0x5D0, 0x5EA),
        (0x600, 0x6FF),
        (0x900, 0x97F),
        (0x0E00, 0x0E7F),
        (0x1100, 0x11FF),
        (0x2000, 0x206F),
        (0x2070, 0x218F),
        (0x2190, 0x27BF),
        (0x3000, 0x30FF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0xE000, 0xE0FF),
        (0xFE00, 0xFE0F),
        (0xFF00, 0xFFEF),
        (0x10400, 0x1044F),
        (0x1D400, 0x1D7FF),
        (0x1F300, 0x1FAFF),
        (0x20000, 0x2A6DF),
        (0xE0100, 0xE01EF),
    ]
    phrases = [
        "I'm", "you'LL", "we've", "don't", " 's", "'", "''s", "3.14", "1,000", "½", "²", "Ⅷ", "٣",
        "  ", "   ", "\t", "\t\t ", " \t ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u0085",
        "\u200b", "\u200d", "\ufeff", "\x0b", "\x0c", "\x1c", "\x1f", "\x00", "\r", "e\u0301", "é",
        "👨\u200d👩\u200d👧", "🇯🇵", "👍🏽", "مرحبا", "שלום", "नमस्ते", "한국어", "日本語", "…", "—",
        "straße", "İ", "ǅ", "ﬁ", "_", "__", "a_b", "C++", "x²", "$5", "!?", "\u0378", "\U0010ffff",
    ]  # fmt: skip
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(0, 14)):
            kind = rng.random()
            if kind < 0.4:
                parts.append(rng.choice(phrases))
            elif kind < 0.7:
                low, high = rng.choice(ranges)
                parts += [chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4))]
            else:
                parts.append(rng.choice(["the", "lamp", "Sea", "KEEPER", "o'clock", " "]))
            if rng.random() < 0.5:
                parts.append(" " * rng.choice([1, 1, 1, 2, 3]))
        # A carriage return at the end would be part of the line ending.
        yield "".join(parts).replace("\n", " ").rstrip("\r")


class TokenizerTest(ParityTest):
    def train_ours(self, files, size):
        folder = self.folder / "tokenizer"
        run_binary(
            "tokenizer", "train", "--type", "byte_level_bpe",
            "--vocab_size", size, "--output", folder, *files,
        )  # fmt: skip
        return folder

    def assert_same_ids(self, ours, golden, lines):
        self.assertEqual(len(ours), len(lines), "one line of ids for each line")
        for number, (mine, line) in enumerate(zip(ours, lines), 1):
            if mine != (expected := golden(line)):
                self.fail(f"line {number} {line!r}: ours {mine}, theirs {expected}")


class Training(TokenizerTest):
    """One test for each text and size, added below, and these."""

    def check_file(self, path, size):
        if not path.exists():
            self.skipTest(f"{path.name} is not there")
        vocabulary, merges, tokenizer = theirs((path,), size)
        folder = self.train_ours([path], size)
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        ours = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
        for number, (mine, golden) in enumerate(zip(ours, merges)):
            self.assertEqual(mine, golden, f"merge {number}")
        self.assertEqual(len(ours), len(merges))
        self.assertEqual(model["vocab"], vocabulary)
        text = path.read_bytes()
        lines = split_lines(text)
        expected = tokenizer(lines, add_special_tokens=False)["input_ids"]
        golden = dict(zip(lines, expected)).__getitem__
        self.assert_same_ids(encode(folder, text), golden, lines)

    def test_several_files_count_as_one_text(self):
        files = (TEXT / "lighthouse.txt", TEXT / "lighthouse-valid.txt")
        vocabulary, _, _ = theirs(files, 700)
        folder = self.train_ours(files, 700)
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        self.assertEqual(model["vocab"], vocabulary)

    def test_a_vocabulary_larger_than_the_text_ends_early(self):
        path = TEXT / "lighthouse-valid.txt"
        vocabulary, _, _ = theirs((path,), 20000)
        folder = self.train_ours([path], 20000)
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        self.assertEqual(model["vocab"], vocabulary)
        self.assertLess(len(vocabulary), 20000)


class Encoding(TokenizerTest):
    """Ids of a tokenizer that both sides load from the same folder."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = scratch_folder(cls.addClassCleanup)
        cls.tokenizer = theirs((TEXT / "lighthouse.txt",), 1000)[2]
        cls.saved = cls.scratch / "saved"
        cls.tokenizer.save_pretrained(cls.saved)

    def ids(self, line, special=False):
        return self.tokenizer(line, add_special_tokens=special)["input_ids"]

    def test_fuzzed_unicode(self):
        lines = list(fuzzed_lines(4000, seed=3))
        text = "".join(x + "\n" for x in lines).encode()
        self.assert_same_ids(encode(self.saved, text), self.ids, lines)

    def test_special_tokens_around_each_line(self):
        lines = list(fuzzed_lines(50, seed=4)) + ["", "a"]
        text = "".join(x + "\n" for x in lines).encode()
        ours = encode(self.saved, text, "--add_special_tokens")
        self.assert_same_ids(ours, lambda line: self.ids(line, special=True), lines)

    def test_special_tokens_inside_text(self):
        lines = [
            "I lit the <mask> at noon.",
            "I lit the<mask>at noon.",
            "a  <mask>  b",
            "<mask>",
            "<mask><mask> <mask>",
            "<s>a</s></s>b</s>",
            "a <pad> <unk> b",
            "< mask> <MASK> <mask",
        ]
        text = "".join(x + "\n" for x in lines).encode()
        self.assert_same_ids(encode(self.saved, text), self.ids, lines)

    def test_vocab_and_merges_alone(self):
        folder = self.scratch / "plain"
        folder.mkdir()
        self.tokenizer.backend_tokenizer.model.save(str(folder))
        self.assertEqual({x.name for x in folder.iterdir()}, {"vocab.json", "merges.txt"})
        lines = list(fuzzed_lines(300, seed=5)) + ["I lit the <mask> at noon."]
        text = "".join(x + "\n" for x in lines).encode()
        self.assert_same_ids(encode(folder, text), self.ids, lines)

    def test_a_last_line_without_a_newline(self):
        self.assertEqual(encode(self.saved, b"one\ntwo"), [self.ids("one"), self.ids("two")])
        self.assertEqual(encode(self.saved, b""), [])

    def test_decoding_gives_the_text_back(self):
        lines = list(fuzzed_lines(300, seed=6))
        rows = "".join(" ".join(map(str, self.ids(x))) + "\n" for x in lines)
        said = run_binary("tokenizer", "decode", "--tokenizer", self.saved, stdin=rows.encode())
        self.assertEqual(said.decode().split("\n")[:-1], lines)


class Saved(TokenizerTest):
    def test_transformers_loads_what_we_train(self):
        from transformers import AutoTokenizer

        path = TEXT / "lighthouse.txt"
        golden = theirs((path,), 1000)[2]
        folder = self.train_ours([path], 1000)
        loaded = AutoTokenizer.from_pretrained(folder)
        self.assertEqual(loaded.get_vocab(), golden.get_vocab())
        self.assertEqual(loaded.special_tokens_map, golden.special_tokens_map)
        self.assertEqual(loaded.mask_token_id, 4)
        lines = list(fuzzed_lines(500, seed=7)) + ["I lit the <mask> at noon.", "a  <mask>  b"]
        for line in lines:
            self.assertEqual(loaded(line)["input_ids"], golden(line)["input_ids"], repr(line))


def add_file(name, size):
    test = lambda self: self.check_file(TEXT_FILES[name], size)
    setattr(Training, f"test_{name}_{size}", test)


for file_name in TEXT_FILES:
    for vocab_size in SIZES:
        add_file(file_name, vocab_size)
