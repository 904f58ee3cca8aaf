# SPDX-License-Identifier: MIT
"""Pre-tokenizers of language models: patterns that are matched by hand, the same and others through PCRE2,
on text of every kind; and transformers classes that build their own parts."""

import functools
import json
import os

from mixed_text import mixed_lines
from support import TEXT, run_for_code
from test_tokenizer import HARD_LINES, OffsetsTest, encode, encode_json, unigram_vocabulary

# Set 10 MB for a thorough run.
SIZE = float(os.environ.get("FINETUNE_TEST_MIXED_MB", "0.03")) * 1e6

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
KNOWN = {
    "gpt2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "llama3": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES],
    "qwen3_5": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
    ],
    "o200k": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
    ],
    "tekken": [
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|"
        r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
    ],
    "deepseek": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
        + SPACES,
    ],
}  # fmt: skip
OTHERS = {
    "cl100k_of_tiktoken": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "deepseek_coder": r"\s?\p{L}+|\s?\p{P}+|[一-龥ࠀ-一가-퟿]+|\p{N}|[\r\n]",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+".replace("[.,", "\\[.,").replace("،]", "،\\]"),
    "starcoder": r"(?:\d{1,3})(?=(?:\d{3})*\b)|\w+|[^\w\s]",
    "boundaries": r"\b[a-zé]+?\b|\B!+",
    "behind": r"(?<=[aeiou])\p{Ll}|(?<!\p{Lu})\p{Po}|\s(?=\d)",
    "lazy": r"a.*?e|[^\p{^L}a]{2,}?|(?>\p{Lo}+)|\x{1F600}+|\u3042|[\x41-\x5A]{,2}x",
    "any_case": r"(?i:the|keeper|[k-n])|(?i:s)|\S",
    "lines": r"^\p{L}+|\p{L}+$|\A.|.\z|\t+",
    "categories": r"\p{Mn}+|\p{Mc}|\p{Me}|\p{Nd}|\p{Nl}|\p{No}|\p{Pc}|\p{Pd}|\p{Ps}|\p{Pe}|\p{Pi}|\p{Pf}|\p{Sm}+|\p{Sc}|"
    r"\p{Sk}|\p{So}+|\p{Zs}+|\p{Zl}|\p{Zp}|\p{Cc}|\p{Cf}|\p{Co}|\p{Cn}+|\P{L}",
}  # fmt: skip
REFUSED = (
    "(", "a|", "a*", "(?i)a", r"(a)\1", "[a[b]]", "[a&&b]", "[[:alpha:]]", r"\p{Han}", r"\R+", r"\h", "a{,2}+", "(?:a?)+",
    "(?i:ss)", "(?i:é)", r"(?i:\p{L})", "(?<n>a)", "[b-a]", "a**", "x{1,99999}", "(?:" * 40 + "a" + ")" * 40, "a" * 5000,
    r"\p{L", "[a", "\\", "a{,}", "(?=a)", r"\K a",
)  # fmt: skip


@functools.cache
def small_model():
    """Returns a byte-level BPE of 700 tokens: {"vocab": ..., "merges": ...} of tokenizer.json."""
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(TEXT / "lighthouse.txt")], vocab_size=700, show_progress=False)
    return json.loads(tokenizer.to_str())["model"]


def tokenizer_of(patterns, behavior="isolated", normalizer=None, ignore_merges=False):
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, processors

    model = {**small_model(), "ignore_merges": ignore_merges}
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
        "decoder": None, "truncation": None, "padding": None, "model": model,
    }))  # fmt: skip
    steps = [pre_tokenizers.Split(Regex(x), behavior) for x in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


class PatternTest(OffsetsTest):
    def check(self, tokenizer, size=SIZE, seed=1):
        (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
        lines = [*mixed_lines(size, seed), *HARD_LINES]
        rows = tokenizer.encode_batch(lines, add_special_tokens=False)
        for line, ours, theirs in zip(lines, encode_json(self.folder, lines), rows):
            self.assert_same(line, ours, theirs.ids, theirs.offsets)
        plain = encode(self.folder, "".join(x + "\n" for x in lines).encode())
        self.assertEqual(plain, [x.ids for x in rows])
        self.assert_same_decoding(self.folder, tokenizer, [x.ids for x in rows[:200]])


class Patterns(PatternTest):
    """One test for each of KNOWN and OTHERS, added below, and the following."""

    def test_every_character(self):
        """All Unicode categories: each character between letters, in every pattern matched by hand."""
        points = [c for c in range(1, 0x110000) if c not in (10, 13) and not 0xD800 <= c < 0xE000]
        used = [c for c in points if c < 0x32400 or 0xE0000 <= c < 0xE0200]
        lines = ["a".join(map(chr, used[i : i + 200])) for i in range(0, len(used), 200)]
        lines += [" ".join(map(chr, used[i : i + 200])) for i in range(0, len(used), 800)]
        for name in ("qwen3_5", "o200k", "deepseek"):
            with self.subTest(name):
                tokenizer = tokenizer_of(KNOWN[name])
                (self.folder / "tokenizer.json").write_text(tokenizer.to_str())
                ours = encode(self.folder, "".join(x + "\n" for x in lines).encode())
                rows = tokenizer.encode_batch(lines, add_special_tokens=False)
                self.assertEqual(ours, [x.ids for x in rows])

    def test_nfc_and_words_that_are_tokens(self):
        from tokenizers import normalizers

        self.check(tokenizer_of(KNOWN["qwen2"], normalizer=normalizers.NFC(), ignore_merges=True), seed=3)

    def test_behaviors(self):
        for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
            with self.subTest(behavior):
                self.check(tokenizer_of(KNOWN["llama3"], behavior), SIZE / 4, seed=4)

    def test_refused_expressions(self):
        file = json.loads(tokenizer_of([r"\p{L}+"]).to_str())
        for regex in REFUSED:
            with self.subTest(regex[:20]):
                file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": regex}
                (self.folder / "tokenizer.json").write_text(json.dumps(file))
                done = run_for_code("tokenizer", "encode", "--tokenizer", self.folder, stdin=b"a\n")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("tokenizer.json: ", done.stderr)
                self.assertIn("regular expression", done.stderr)


def add_pattern(name, patterns):
    setattr(Patterns, f"test_{name}", lambda self: self.check(tokenizer_of(patterns)))


for pattern_name, pattern_list in KNOWN.items():
    add_pattern(pattern_name, pattern_list)
    # In a group the pattern's text differs, so PCRE2 matches it.
    add_pattern(f"{pattern_name}_by_pcre2", [f"(?:{x})" for x in pattern_list])
for pattern_name, pattern_text in OTHERS.items():
    add_pattern(pattern_name, [pattern_text])


@functools.cache
def spaced_model():
    """Returns a BPE with byte fallback over words that begin with "▁", as in Llama 2 and Gemma."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<pad>", "<eos>", "<bos>", "<mask>"]
    special += [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False)
    tokenizer.train([str(TEXT / "lighthouse.txt")], trainer)
    return json.loads(tokenizer.to_str())["model"]


class Classes(OffsetsTest):
    """AutoTokenizer's result for a folder: transformers' own classes, or tokenizer.json itself."""

    def write(self, model, config, model_type=None, added=(), **parts):
        file = {
            "version": "1.0", "added_tokens": list(added), "normalizer": {"type": "NFKC"}, "truncation": None,
            "pre_tokenizer": {"type": "Digits", "individual_digits": True}, "post_processor": None, "decoder": None,
            "padding": None, "model": model, **parts,
        }  # fmt: skip
        (self.folder / "tokenizer.json").write_text(json.dumps(file))
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))
        (self.folder / "config.json").unlink(missing_ok=True)
        if model_type:
            (self.folder / "config.json").write_text(json.dumps({"model_type": model_type}))

    def check(self, size=8e3):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.folder)
        lines = [*mixed_lines(size, 5), *HARD_LINES, "<s>a</s> <|endoftext|>b<mask> [MASK]", " a", "▁a  b"]
        rows = tokenizer(lines, return_offsets_mapping=True)
        self.assert_rows(lines, encode_json(self.folder, lines, "--add_special_tokens"), rows)
        plain = encode(self.folder, "".join(x + "\n" for x in lines).encode(), "--add_special_tokens")
        self.assertEqual(plain, rows["input_ids"])
        self.assert_same_decoding(self.folder, tokenizer, rows["input_ids"][:100])

    def check_configs(self, model, name, *configs, model_type=None, **parts):
        for config in ({}, *configs):
            with self.subTest(config):
                self.write(model, {"tokenizer_class": name, **config}, model_type, **parts)
                self.check()

    BOS_EOS = ({"add_bos_token": True, "bos_token": "<s>"}, {"add_eos_token": True, "add_bos_token": False})

    def test_gpt2(self):
        self.check_configs(small_model(), "GPT2Tokenizer", {"add_prefix_space": True}, *self.BOS_EOS)
        self.check_configs(small_model(), "GPT2TokenizerFast", model_type="gpt2")

    def test_gpt2_of_vocab_and_merges(self):
        model = small_model()
        (self.folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        (self.folder / "merges.txt").write_text("".join(" ".join(x) + "\n" for x in model["merges"]))
        for config in ({}, {"add_bos_token": True}, {"add_bos_token": True, "add_eos_token": True}):
            with self.subTest(config):
                file = {"tokenizer_class": "GPT2Tokenizer", **config}
                (self.folder / "tokenizer_config.json").write_text(json.dumps(file))
                self.check()

    def test_qwen2(self):
        unset = {"unk_token": None, "bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False}
        self.check_configs(small_model(), "Qwen2Tokenizer", unset, {"add_prefix_space": True})
        self.check_configs(small_model(), "PreTrainedTokenizerFast", model_type="qwen2")
        self.check_configs(small_model(), "Qwen2TokenizerFast", model_type="qwen3")

    def test_llama(self):
        configs = ({"legacy": True}, {"legacy": False}, {"add_prefix_space": False}, {"add_bos_token": True, "legacy": True})
        self.check_configs(spaced_model(), "LlamaTokenizer", *configs, *self.BOS_EOS)
        self.check_configs(spaced_model(), "LlamaTokenizerFast", model_type="llama")

    def test_gemma(self):
        self.check_configs(spaced_model(), "GemmaTokenizer", {"add_bos_token": True}, {"add_eos_token": True})
        self.check_configs(spaced_model(), "GemmaTokenizerFast", model_type="gemma2")

    def test_deberta_v2(self):
        vocabulary = unigram_vocabulary(("[PAD]", "[CLS]", "[SEP]", "[UNK]", "<unk>"))
        model = {"type": "Unigram", "unk_id": 3, "vocab": [list(x) for x in vocabulary]}
        configs = ({"do_lower_case": True}, {"split_by_punct": True}, {"add_prefix_space": False})
        self.check_configs(model, "DebertaV2Tokenizer", *configs)
        self.check_configs(model, "DebertaV2TokenizerFast", model_type="deberta-v2")

    def test_folders_that_are_executed_as_they_stand(self):
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        self.check_configs(small_model(), "LlamaTokenizerFast", model_type="llama", pre_tokenizer=byte_level)
        self.check_configs(small_model(), "PreTrainedTokenizerFast", *self.BOS_EOS, model_type="llama",
                           pre_tokenizer=byte_level)  # fmt: skip
        for model_type in ("mistral", "phi3", "olmo2", "modernbert"):
            self.check_configs(spaced_model(), "LlamaTokenizer", model_type=model_type)

    def test_types_of_models_without_a_class(self):
        for model_type in ("gpt2", "qwen2", "qwen3"):
            self.write(small_model(), {}, model_type)
            self.check()
