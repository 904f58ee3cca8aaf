# SPDX-License-Identifier: MIT
"""`tokenizer train --type sentencepiece_*`: its pieces equal those of SentencePiece's trainer, and our
encoder, transformers and the sentencepiece package give the same ids and texts."""

import importlib.util
import random
import unittest

from support import TEXT, ParityTest, run_binary
from test_tokenizer import REAL_TEXTS

SYMBOLS = ["_START_ARTICLE_", "_START_SECTION_", "_START_PARAGRAPH_", "_NEWLINE_"]
CONTROL = ["[CLS]", "[SEP]", "[MASK]"]
LIGHTHOUSE = TEXT / "lighthouse.txt"
TRAPS = [
    "", " ", "  a  ", "a\tb\u3000c", "\u3000", "ａｂ①㍿", "e\u0301", "👩\u200d👧", "日本語", "ß", "\ufeffx",
    "x\u200by", "▁", "a▁b", "…", "½", "[SEP]", "a [SEP] b", "a[MASK]b", "[CLS] a b [SEP]", "<s>", "<unk>x",
    *SYMBOLS, " _NEWLINE_ ", "x_NEWLINE_y", "_NEWLINE__NEWLINE_", "_START_ARTICLE_ a", "_START_", "__NEWLINE_",
]  # fmt: skip


def with_symbols(lines, seed):
    rng = random.Random(seed)
    for line in lines:
        at = rng.randint(0, len(line))
        symbol = rng.choice(SYMBOLS)
        yield line[:at] + symbol + line[at:]
        yield f"{symbol}{line} {rng.choice(SYMBOLS)}"


def sample_lines(path):
    lines = [x for x in path.read_text().splitlines() if x][:250]
    return lines + list(with_symbols(lines[:100], seed=51)) + TRAPS


@unittest.skipUnless(importlib.util.find_spec("sentencepiece"), "sentencepiece is not installed")
class Training(ParityTest):
    def train(self, path, kind, size, *options):
        folder = self.folder / "tokenizer"
        run_binary("tokenizer", "train", "--type", f"sentencepiece_{kind}", "--vocab_size", size,
                   "--user_defined_symbols", ",".join(SYMBOLS), "--output", folder, "--overwrite",
                   *options, path)  # fmt: skip
        return folder

    def encode(self, folder, lines):
        text = "".join(x + "\n" for x in lines).encode()
        said = run_binary("tokenizer", "encode", "--tokenizer", folder, stdin=text).decode()
        return [[int(x) for x in row.split()] for row in said.split("\n")[:-1]]

    def check(self, path, kind, size, *options):
        import sentencepiece
        from transformers import AutoTokenizer

        folder = self.train(path, kind, size, *options)
        theirs = AutoTokenizer.from_pretrained(folder)
        library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
        self.assertEqual(len(theirs), library.get_piece_size())
        for token in CONTROL + SYMBOLS + ["<pad>", "<unk>"]:
            self.assertEqual(theirs.convert_tokens_to_ids(token), library.piece_to_id(token))
        lines = sample_lines(path)
        ours = self.encode(folder, lines)
        self.assertEqual(len(ours), len(lines))
        for line, ids in zip(lines, ours):
            self.assertEqual(ids, theirs.encode(line, add_special_tokens=False), line)
            # The library treats special tokens as text, so skip lines with them.
            if any(x in line for x in CONTROL + ["<s>", "<unk>"]):
                parts = line.split("[SEP]")
                if any(x in part for part in parts for x in ("[CLS]", "[MASK]", "<")):
                    continue
                expected = library.encode(parts[0])
                for part in parts[1:]:
                    expected += [theirs.sep_token_id, *library.encode(part)]
                self.assertEqual(ids, expected, line)
                continue
            self.assertEqual(ids, library.encode(line), line)
            if theirs.unk_token_id not in ids:
                self.assertEqual(theirs.decode(ids), library.decode(ids), line)
        text = "".join(" ".join(map(str, ids)) + "\n" for ids in ours).encode()
        said = run_binary("tokenizer", "decode", "--tokenizer", folder, stdin=text).decode()
        self.assertEqual(said.split("\n")[:-1], [theirs.decode(ids) for ids in ours])

    def check_all(self, path, size):
        for kind in ("unigram", "bpe"):
            for options in ((), ("--byte_fallback",)):
                with self.subTest(kind=kind, options=options):
                    self.check(path, kind, size, *options)

    def test_lighthouse(self):
        self.check_all(LIGHTHOUSE, 700)

    def test_without_a_space_in_front(self):
        for kind in ("unigram", "bpe"):
            self.check(LIGHTHOUSE, kind, 400, "--add_dummy_prefix", "false")

    def test_japanese(self):
        if not (REAL_TEXTS / "japanese.txt").exists():
            self.skipTest("japanese.txt is not here")
        self.check_all(REAL_TEXTS / "japanese.txt", 3000)

    def test_esperanto(self):
        if not (REAL_TEXTS / "esperanto-valid.txt").exists():
            self.skipTest("esperanto-valid.txt is not here")
        self.check_all(REAL_TEXTS / "esperanto-valid.txt", 2000)

    def test_pieces_of_the_library_own_trainer(self):
        import sentencepiece

        for kind in ("unigram", "bpe"):
            for ours, named in (
                ((), {}),
                (("--input_sentence_size", "250"), dict(input_sentence_size=250)),
                (("--byte_fallback", "--character_coverage", "0.98", "--split_digits"),
                 dict(byte_fallback=True, character_coverage=0.98, split_digits=True)),
            ):  # fmt: skip
                with self.subTest(kind=kind, options=named):
                    folder = self.train(LIGHTHOUSE, kind, 500, *ours)
                    sentencepiece.SentencePieceTrainer.train(
                        input=str(LIGHTHOUSE), model_prefix=str(self.folder / "theirs"),
                        model_type=kind, vocab_size=500, pad_id=0, bos_id=1, eos_id=2, unk_id=3,
                        control_symbols=CONTROL, user_defined_symbols=SYMBOLS, minloglevel=2,
                        **named,
                    )  # fmt: skip
                    mine = (folder / "spiece.vocab").read_text()
                    theirs = (self.folder / "theirs.vocab").read_text()
                    if sentencepiece.__version__ == "0.2.1":
                        self.assertEqual(mine, theirs)
                        continue
                    # Another version sums and samples differently.
                    pieces = [{x.split("\t")[0] for x in y.splitlines()} for y in (mine, theirs)]
                    self.assertGreater(len(pieces[0] & pieces[1]), 0.75 * len(pieces[0]))  # 0.8 with AVX2
