# SPDX-License-Identifier: MIT
"""Tokenizers of every family: the vocabulary and merges learned by byte-level BPE; ids, offsets, token
types, pairs and decoded texts of transformers' classes and of Hugging Face's tokenizers."""

import functools
import json
import os
import random
import tempfile
from pathlib import Path

from support import TEXT, ParityTest, run_binary, scratch_folder

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# Real texts are not part of the project: set this to a folder to compare on them too.
REAL_TEXTS = Path(os.environ.get("FINETUNE_TEST_TEXTS", os.devnull))
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
    """Trains with Hugging Face: (vocabulary, merges, RobertaTokenizer)."""
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
    """Returns one list of ids for each line of `text`."""
    said = run_binary("tokenizer", "encode", "--tokenizer", folder, *options, stdin=text).decode()
    lines = said.split("\n")
    assert lines.pop() == "", "the last line ends with a newline"
    return [[int(x) for x in line.split()] for line in lines]


def encode_json(folder, lines, *options):
    """Returns the output of `tokenizer encode --offsets` for each line."""
    text = "".join(x + "\n" for x in lines).encode()
    command = ("tokenizer", "encode", "--tokenizer", folder, "--offsets", *options)
    said = run_binary(*command, stdin=text).decode().split("\n")
    assert said.pop() == "" and len(said) == len(lines)
    return [json.loads(x) for x in said]


def split_lines(text):
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [x.decode() for x in lines]


def fuzzed_lines(count, seed):
    """Yields lines with characters that a pre-tokenizer could confuse with others."""
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
        # A carriage return at the end would belong to the line ending.
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
    """One test for each text and size, added below, and the following."""

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
    """Compares ids of a tokenizer that both sides load from the same folder."""

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


CORPUS = TEXT / "lighthouse.txt"
BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
HARD_LINES = [
    "", " ", "[MASK] a [SEP]b  [MASK]", "a<mask>b  <mask> c", "  two  spaces ", "café CAFÉ Ａ ﬁ",
    "İstanbul ΑΣ", "a\u0344b \u0f73", "\u0301abc", "ậ… Việt", "朝の海、日本 語", "x" * 120, "한국어 각 \u1100\u1161\u11a8", "don't do not",
]  # fmt: skip


def corpus_lines():
    lines = CORPUS.read_text().split("\n")
    for name in ("esperanto", "japanese"):
        if TEXT_FILES[name].exists():
            lines += TEXT_FILES[name].read_text().split("\n")[:300]
    return lines


@functools.cache
def wordpiece_vocabulary(lowercase):
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(lowercase=lowercase)
    lines = corpus_lines()
    tokenizer.train_from_iterator(
        lines, vocab_size=3000, special_tokens=BRACKETS, show_progress=False
    )
    return tokenizer.get_vocab()


@functools.cache
def unigram_vocabulary(special):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=list(special), unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus_lines(), trainer)
    return [tuple(x) for x in json.loads(tokenizer.to_str())["model"]["vocab"]]


def make_class(kind):
    """Returns a tokenizer of transformers as it saves it."""
    import transformers

    if kind.startswith("bert"):
        vocabulary = wordpiece_vocabulary("cased" not in kind)
        return transformers.BertTokenizer(vocab=vocabulary, do_lower_case="cased" not in kind)
    if kind == "xlm_roberta":
        vocabulary = unigram_vocabulary(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
        return transformers.XLMRobertaTokenizer(vocab=vocabulary)
    if kind == "big_bird":
        special = ("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
        return transformers.BigBirdTokenizer(vocab=unigram_vocabulary(special))
    _, merges, tokenizer = theirs((CORPUS,), 1000)
    prefix = kind.endswith("prefix")
    return transformers.RobertaTokenizer(
        vocab=tokenizer.get_vocab(), merges=merges, add_prefix_space=prefix
    )


class OffsetsTest(TokenizerTest):
    def assert_same(self, line, ours, ids, offsets, types=None):
        if ours["input_ids"] != list(ids):
            self.fail(f"{line!r}: ours {ours['input_ids']}, theirs {ids}")
        offsets = [list(x) for x in offsets]
        if ours["offset_mapping"] != offsets:
            self.fail(f"{line!r}: ours {ours['offset_mapping']}, theirs {offsets}")
        if types is not None:
            self.assertEqual(ours["token_type_ids"], list(types), repr(line))

    def assert_rows(self, lines, ours, rows):
        none = [None] * len(lines)
        for line, mine, ids, offsets, types in zip(
            lines, ours, rows["input_ids"], rows["offset_mapping"], rows.get("token_type_ids", none)
        ):
            self.assert_same(
                line, mine, ids, offsets, types if types is not None else [0] * len(ids)
            )

    def assert_same_decoding(self, folder, tokenizer, rows):
        text = "".join(" ".join(map(str, ids)) + "\n" for ids in rows).encode()
        for options in ((), ("--skip_special_tokens",)):
            said = run_binary("tokenizer", "decode", "--tokenizer", folder, *options, stdin=text)
            expected = [tokenizer.decode(x, skip_special_tokens=bool(options)) for x in rows]
            self.assertEqual(said.decode().split("\n")[:-1], expected)


class Families(OffsetsTest):
    """Folders saved by transformers or with its older files; texts are added below."""

    def check_folder(self, folder, lines):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        rows = tokenizer(lines, return_offsets_mapping=True)
        self.assert_rows(lines, encode_json(folder, lines, "--add_special_tokens"), rows)
        return tokenizer, rows

    def check_everything(self, folder, count=1200):
        lines = [*fuzzed_lines(count, seed=41), *HARD_LINES]
        tokenizer, rows = self.check_folder(folder, lines)
        plain = encode(folder, "".join(x + "\n" for x in lines).encode(), "--add_special_tokens")
        self.assertEqual(plain, rows["input_ids"])
        self.assert_same_decoding(folder, tokenizer, rows["input_ids"][:300])
        first = [x.replace("\t", " ") for x in lines[-400:]]
        second = first[1:] + first[:1]
        pairs = [f"{a}\t{b}" for a, b in zip(first, second)]
        ours = encode_json(folder, pairs, "--pair", "--add_special_tokens")
        self.assert_rows(pairs, ours, tokenizer(first, second, return_offsets_mapping=True))

    def save(self, kind):
        folder = self.folder / "saved"
        make_class(kind).save_pretrained(folder)
        return folder

    def check_text(self, kind, name):
        if not TEXT_FILES[name].exists():
            self.skipTest(f"{name} is not there")
        self.check_folder(self.save(kind), split_lines(TEXT_FILES[name].read_bytes()))

    def vocab_txt(self, **config):
        folder = self.folder / "older"
        folder.mkdir()
        vocabulary = wordpiece_vocabulary(True)
        lines = sorted(vocabulary, key=vocabulary.get)
        (folder / "vocab.txt").write_text("".join(x + "\n" for x in lines))
        config["tokenizer_class"] = "BertTokenizer"
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    def test_vocab_txt(self):
        self.check_everything(self.vocab_txt())

    def test_vocab_txt_with_its_options(self):
        options = dict(do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False)
        self.check_everything(self.vocab_txt(**options), 300)

    def test_a_class_takes_the_vocabulary_alone_from_tokenizer_json(self):
        saved = self.save("bert_cased")
        file = json.loads((saved / "tokenizer.json").read_text())
        file["normalizer"] = {"type": "NFKC"}
        file["post_processor"] = None
        folder = self.folder / "changed"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(file))
        for config in (
            {"tokenizer_class": "BertTokenizerFast"},
            {"tokenizer_class": "PreTrainedTokenizerFast"},
        ):
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
            self.check_folder(folder, [*fuzzed_lines(200, seed=42), *HARD_LINES])

    def test_flags_of_added_tokens(self):
        saved = self.save("roberta")
        file = json.loads((saved / "tokenizer.json").read_text())
        mask = next(x for x in file["added_tokens"] if x["content"] == "<mask>")
        names = json.loads((saved / "tokenizer_config.json").read_text())
        lines = ["a  <mask>  b", "x<mask>y", " <mask>", "é<mask> <x>c", "<s> a </s> <pad>b"]
        for flags in ({"lstrip": True}, {"rstrip": True, "special": False}, {"normalized": True}):
            for more in ({}, {"extra_special_tokens": ["<x>"]}):
                for name in ("RobertaTokenizer", "PreTrainedTokenizerFast"):
                    folder = scratch_folder(self.addCleanup)
                    mask.update(lstrip=False, rstrip=False, special=True, normalized=False)
                    mask.update(flags)
                    config = {**names, **more, "tokenizer_class": name}
                    (folder / "tokenizer.json").write_text(json.dumps(file))
                    (folder / "tokenizer_config.json").write_text(json.dumps(config))
                    tokenizer, rows = self.check_folder(folder, lines)
                    self.assert_same_decoding(folder, tokenizer, rows["input_ids"])


FAMILIES = ("bert_uncased", "bert_cased", "roberta", "roberta_prefix", "xlm_roberta", "big_bird")


def add_family(kind):
    setattr(Families, f"test_{kind}", lambda self: self.check_everything(self.save(kind)))
    for name in () if kind == "roberta_prefix" else TEXT_FILES:
        test = lambda self, name=name: self.check_text(kind, name)
        setattr(Families, f"test_{kind}_{name}", test)


for family in FAMILIES:
    add_family(family)


def components():
    """Yields (name, normalizer, pre_tokenizer, post_processor, decoder) of tokenizer.json."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers, processors

    byte_level = pre_tokenizers.ByteLevel
    spelt = decoders.ByteLevel()
    roberta = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    trim = processors.ByteLevel(trim_offsets=True)
    forms = ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Lowercase")
    for form in forms:
        yield form, getattr(normalizers, form)(), byte_level(), roberta, spelt
    yield (
        "steps",
        normalizers.Sequence([
            normalizers.NFKC(), normalizers.Strip(), normalizers.Replace("a", "oo"), normalizers.Prepend("x "),
            normalizers.Replace(Regex(" {2,}"), "▁"), normalizers.Replace(Regex(r"\s+"), ""), normalizers.Lowercase(),
        ]), byte_level(), trim, spelt,
    )  # fmt: skip
    yield (
        "byte_level_normalizer",
        normalizers.ByteLevel(),
        pre_tokenizers.WhitespaceSplit(),
        None,
        spelt,
    )
    sequence = pre_tokenizers.Sequence
    digits = pre_tokenizers.Digits(individual_digits=True)
    yield (
        "digits_and_bytes",
        None,
        sequence([digits, byte_level(add_prefix_space=False)]),
        trim,
        spelt,
    )
    punctuation = pre_tokenizers.Punctuation("merged_with_next")
    yield "bytes_and_punctuation", None, sequence([byte_level(), punctuation]), trim, spelt
    for scheme in ("always", "first", "never"):
        metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=scheme != "never")
        yield (
            f"metaspace_{scheme}",
            None,
            metaspace,
            None,
            decoders.Metaspace(prepend_scheme=scheme),
        )
    for behavior in (
        "removed",
        "isolated",
        "merged_with_previous",
        "merged_with_next",
        "contiguous",
    ):
        pattern = Regex(r"[^\s\p{L}]+|\p{N}{1,3}|\s+(?!\S)|\w\S")
        split = pre_tokenizers.Split
        steps = [
            split(pattern, behavior),
            split("e", behavior, True),
            pre_tokenizers.Punctuation(behavior),
        ]
        yield f"split_{behavior}", None, sequence(steps), None, decoders.Fuse()
    yield "whitespace", None, pre_tokenizers.Whitespace(), None, None
    steps = [
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Digits(),
        pre_tokenizers.CharDelimiterSplit("a"),
    ]
    yield "delimiter", None, sequence(steps), None, decoders.BPEDecoder()
    yield "nothing", None, None, None, None


class Components(OffsetsTest):
    """tokenizer.json with each row of components(); tests are added below."""

    def check(self, parts):
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        normalizer, pre_tokenizer, post_processor, decoder = parts
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        if normalizer:
            tokenizer.normalizer = normalizer
        if pre_tokenizer:
            tokenizer.pre_tokenizer = pre_tokenizer
        trainer = trainers.BpeTrainer(
            vocab_size=900, special_tokens=SPECIAL_TOKENS, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=30,
        )  # fmt: skip
        tokenizer.train_from_iterator(CORPUS.read_text().split("\n"), trainer)
        if post_processor:
            tokenizer.post_processor = post_processor
        if decoder:
            tokenizer.decoder = decoder
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
        lines = [*fuzzed_lines(500, seed=43), *HARD_LINES]
        rows = []
        for line, ours in zip(lines, encode_json(self.folder, lines, "--add_special_tokens")):
            encoding = tokenizer.encode(line)
            self.assert_same(line, ours, encoding.ids, encoding.offsets, encoding.type_ids)
            rows.append(encoding.ids)
        self.assert_same_decoding(self.folder, tokenizer, rows)

    def test_every_character(self):
        """All Unicode marks, forms and classes in BERT's normalizer and pre-tokenizer."""
        from tokenizers import BertWordPieceTokenizer

        tokenizer = BertWordPieceTokenizer(vocab=wordpiece_vocabulary(True))
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
        points = [c for c in range(1, 0x30000) if c not in (10, 13) and not 0xD800 <= c < 0xE000]
        lines = ["a".join(map(chr, points[i : i + 24])) for i in range(0, len(points), 24)]
        for line, ours in zip(lines, encode_json(self.folder, lines)):
            encoding = tokenizer.encode(line, add_special_tokens=False)
            self.assert_same(line, ours, encoding.ids, encoding.offsets)


for component, *component_parts in components():
    check_component = lambda self, parts=component_parts: self.check(parts)
    setattr(Components, f"test_{component}", check_component)


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
