# SPDX-License-Identifier: MIT
"""Classes of tokenizers: for a class, a model type and a kind of tokenizer.json, AutoTokenizer's ids or an
error that names the class and the file; and the table of classes against that of transformers."""

import functools
import json
import re
from pathlib import Path

from support import ROOT, TEXT, ParityTest, run_for_code
from test_tokenizer import CORPUS, encode_json, theirs, unigram_vocabulary, wordpiece_vocabulary
from test_tokenizer_patterns import KNOWN, spaced_model

LINES = [
    "The lamp was lit.", "  I'm here, it's DON'T  we'LL 3.14 1,000 and 12345!?", "Café CAFÉ naïve e\u0301 Å",
    "朝の海、日本 語 한국어", "c\td  ", "x_y <s>a</s> [MASK] <mask>b <|endoftext|>", "", "ﬁ Ａ ½ ²",
    "a<pad>b <unk> [UNK] <|padding|>  <PAD> <BOS_TOKEN>",
]  # fmt: skip
SOURCE = ROOT / "src" / "tokenizer" / "pipeline" / "transformers_classes.cpp"

# (model type, class, kind of file): what a folder's files say; "" if they say nothing.
EQUAL = (
    ("bert", "DistilBertTokenizer", "wordpiece"),
    ("bert", "ElectraTokenizerFast", "wordpiece"),
    ("electra", "", "wordpiece"),
    ("distilbert", "DistilBertTokenizerFast", "wordpiece"),
    ("bert", "MPNetTokenizer", "wordpiece"),
    ("bert", "PreTrainedTokenizerFast", "wordpiece"),
    ("mpnet", "", "wordpiece"),
    ("roberta", "PreTrainedTokenizer", "wordpiece"),
    ("bert", "GraniteTokenizer", "wordpiece"),
    ("roberta", "BartTokenizer", "llama3"),
    ("roberta", "LongformerTokenizerFast", "gpt2"),
    ("gpt2", "GPTNeoXTokenizer", "llama3"),
    ("llama", "GPTNeoXTokenizerFast", "gpt2"),
    ("gpt_neox", "", "llama3"),
    ("gpt2", "CodeGenTokenizer", "llama3"),
    ("llama", "CohereTokenizerFast", "llama3"),
    ("cohere", "", "gpt2"),
    ("deberta", "", "llama3"),
    ("bert", "DebertaTokenizer", "gpt2"),
    ("granite", "GPT2Tokenizer", "llama3"),
    ("mistral", "BertTokenizer", "unigram"),
    ("phi", "", "llama3"),
    ("starcoder2", "GPT2TokenizerFast", "llama3"),
    ("qwen2", "LlamaTokenizer", "llama3"),
    ("qwen3", "LlamaTokenizer", "llama3"),
    ("qwen3", "LlamaTokenizerFast", "spaced"),
    ("qwen3_5", "Qwen2Tokenizer", "llama3"),
    ("llama", "LlamaTokenizer", "llama3"),
    ("llama", "Phi3Tokenizer", "spaced"),
    ("phi3", "LlamaTokenizer", "spaced"),
    ("gemma", "LlamaTokenizer", "spaced"),
    ("gemma3", "", "spaced"),
    ("smollm3", "BloomTokenizerFast", "llama3"),
    ("llama", "", "unigram"),
    ("xmod", "", "unigram"),
    ("nezha", "", "wordpiece"),
    ("modernbert", "GemmaTokenizer", "spaced"),  # mmBERT
    ("modernbert", "GemmaTokenizerFast", "spaced"),
)
REFUSED = (
    ("roberta", "", "wordpiece", "RobertaTokenizer"),
    ("roberta", "RobertaTokenizer", "unigram", "RobertaTokenizer"),
    ("bert", "BertTokenizer", "gpt2", "BertTokenizer"),
    ("qwen2", "", "wordpiece", "Qwen2Tokenizer"),
    ("llama", "LlamaTokenizer", "unigram", "LlamaTokenizer"),
    ("albert", "", "unigram", "AlbertTokenizer"),
    ("bert", "AlbertTokenizerFast", "unigram", "AlbertTokenizer"),
    ("roberta", "LukeTokenizer", "gpt2", "LukeTokenizer"),
    ("t5", "", "unigram", "T5Tokenizer"),
    ("bert", "ConvBertTokenizer", "wordpiece", "ConvBertTokenizer"),
    ("llama", "CodeLlamaTokenizer", "spaced", "CodeLlamaTokenizer"),
)


@functools.cache
def tokenizer_file(kind):
    """Returns a tokenizer.json with a pipeline that differs from those of the classes."""
    pre_tokenizer = {"type": "Whitespace"}
    if kind == "wordpiece":
        vocabulary = {**wordpiece_vocabulary(False)}
        model = {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary,
        }  # fmt: skip
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    elif kind == "unigram":
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        vocabulary = [list(x) for x in unigram_vocabulary(tuple(special))]
        model = {"type": "Unigram", "unk_id": 3, "byte_fallback": False, "vocab": vocabulary}
    elif kind == "spaced":
        model, special = spaced_model(), ["<unk>", "<s>", "</s>", "<pad>"]
        pre_tokenizer = {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True,
        }  # fmt: skip
    else:
        vocabulary, merges, _ = theirs((CORPUS,), 1000)
        model = {"type": "BPE", "vocab": vocabulary, "merges": [list(x) for x in merges]}
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        bytes_of = {
            "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind == "gpt2",
        }  # fmt: skip
        split = {
            "type": "Split", "pattern": {"Regex": KNOWN["llama3"][0]}, "behavior": "Isolated", "invert": False,
        }  # fmt: skip
        steps = [bytes_of] if kind == "gpt2" else [split, bytes_of]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": steps}
    vocabulary = model["vocab"]
    ids = vocabulary if isinstance(vocabulary, dict) else {x[0]: i for i, x in enumerate(vocabulary)}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    added = sorted(({"id": ids[x], "content": x, **flags} for x in special), key=lambda x: x["id"])
    return json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None, "model": model,
        }
    )  # fmt: skip


class Folders(ParityTest):
    def write(self, model_type, name, kind, **config):
        folder = self.folder / f"{model_type}-{name}-{kind}"
        folder.mkdir(exist_ok=True)
        if name:
            config["tokenizer_class"] = name
        (folder / "tokenizer.json").write_text(tokenizer_file(kind))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        if model_type:
            (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        return folder

    def check(self, folder, tokenizer=None):
        from transformers import AutoTokenizer

        tokenizer = tokenizer or AutoTokenizer.from_pretrained(folder)
        rows = tokenizer(LINES, return_offsets_mapping=True)
        ours = encode_json(folder, LINES, "--add_special_tokens")
        for line, mine, ids, offsets in zip(LINES, ours, rows["input_ids"], rows["offset_mapping"]):
            self.assertEqual(mine["input_ids"], ids, repr(line))
            self.assertEqual(mine["offset_mapping"], [list(x) for x in offsets], repr(line))

    def refusal(self, folder):
        done = run_for_code("tokenizer", "encode", "--tokenizer", folder, stdin=b"a\n")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def test_ids_of_autotokenizer(self):
        for model_type, name, kind in EQUAL:
            with self.subTest(f"{model_type} {name} {kind}"):
                self.check(self.write(model_type, name, kind))

    def test_refused_classes(self):
        for model_type, name, kind, said in REFUSED:
            with self.subTest(f"{model_type} {name} {kind}"):
                text = self.refusal(self.write(model_type, name, kind))
                self.assertIn("tokenizer.json: ", text)
                self.assertIn(f"'{said}'", text)
                self.assertIn("model_type" if model_type == "qwen2" else "TokenizersBackend", text)

    def test_the_advice_of_a_refusal(self):
        folder = self.write("albert", "", "unigram")
        self.refusal(folder)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "TokenizersBackend"}')
        self.check(folder)

    def test_a_refused_class_saved_by_transformers(self):
        from transformers import AutoTokenizer

        for name, kind in (
            ("T5Tokenizer", "unigram"), ("CamembertTokenizer", "unigram"), ("LukeTokenizer", "gpt2"),
            ("CodeLlamaTokenizer", "spaced"),
        ):  # fmt: skip
            with self.subTest(name):
                folder = self.write("llama", name, kind)
                self.refusal(folder)
                tokenizer = AutoTokenizer.from_pretrained(folder)
                tokenizer.save_pretrained(folder)
                path = folder / "tokenizer_config.json"
                config = json.loads(path.read_text())
                path.write_text(json.dumps({**config, "tokenizer_class": "TokenizersBackend"}))
                self.check(folder, tokenizer)

    def test_the_class_of_config_json(self):
        folder = self.write("", "", "wordpiece")
        config = {"model_type": "roberta", "tokenizer_class": "MPNetTokenizer"}
        (folder / "config.json").write_text(json.dumps(config))
        self.check(folder)

    def test_a_result_keeps_a_tokenizer_of_no_class(self):
        """A bare tokenizer.json is used as it is; next to a config.json it would become its type's class."""
        from tokenizers import Tokenizer
        from transformers import AutoTokenizer

        for model_type, kind in (("roberta", "wordpiece"), ("bert", "llama3"), ("modernbert", "unigram")):
            with self.subTest(f"{model_type} {kind}"):
                folder = self.folder / f"bare-{kind}"
                folder.mkdir()
                (folder / "tokenizer.json").write_text(tokenizer_file(kind))
                sizes = {
                    "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 16,
                }  # fmt: skip
                text = str(TEXT / "lighthouse.txt")
                result = self.train(
                    {"task": "mlm", "max_steps": 1, "per_device_train_batch_size": 2, "max_seq_length": 32},
                    f"{model_type}-{kind}",
                    model_name_or_path=None,
                    model_type=model_type,
                    config_overrides=sizes,
                    train_file=text,
                    validation_file=text,
                    tokenizer_name=str(folder),
                )
                read = Tokenizer.from_file(str(folder / "tokenizer.json"))
                written = AutoTokenizer.from_pretrained(result)
                ids = [read.encode(line, add_special_tokens=False).ids for line in LINES]
                self.assertEqual(written(LINES, add_special_tokens=False)["input_ids"], ids)
                ours = encode_json(result, LINES)
                self.assertEqual([row["input_ids"] for row in ours], ids)

    def test_auto_map(self):
        code = {"AutoTokenizer": [None, "tokenization_own.OwnTokenizer"]}
        self.check(self.write("granite", "GPT2Tokenizer", "llama3", auto_map=code))
        self.check(self.write("llama", "GPT2TokenizerFast", "llama3", auto_map=code))
        folder = self.write("llama", "OwnTokenizer", "llama3", auto_map=code)
        self.assertIn("tokenizer_config.json: 'auto_map' names Python code", self.refusal(folder))


class Table(ParityTest):
    @classmethod
    def setUpClass(cls):
        from transformers.models.auto import tokenization_auto

        cls.auto = tokenization_auto
        text = SOURCE.read_text()
        part = lambda name: re.search(rf"\b{name}(?:\[\])? =\s*(.*?);", text, re.S)[1]
        strings = lambda x: re.findall(r'"([^"]*)"', x)
        cls.classes = re.findall(r'\{(?:"(\w+)"|kBackend), TokenizerClass::(\w+)', part("kClasses"))
        cls.classes = [(name or "TokenizersBackend", which) for name, which in cls.classes]
        cls.unsupported = "".join(strings(part("kUnsupported"))).split()
        cls.overriding = "".join(strings(part("kOverriding"))).split()
        rows = re.findall(r'\{"(\w+)",\s*((?:"[^"]*"\s*)+)\}', part("kRegistered"))
        cls.registered = {t: n for n, types in rows for t in "".join(strings(types)).split()}
        families = (ROOT / "include/finetune/base/model_families.def").read_text()
        for model_type, name in re.findall(r'model_type = "([^"]+)",\s*\.tokenizer_class = "([^"]*)"', families):
            if name:
                cls.registered[model_type] = name

    def test_types(self):
        source = Path(self.auto.__file__).read_text()
        known = {
            *self.auto.CONFIG_MAPPING_NAMES, *self.auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
        }  # fmt: skip
        for model_type, name in self.auto.TOKENIZER_MAPPING_NAMES.items():
            with self.subTest(model_type):
                if model_type not in known:
                    self.assertNotIn(model_type, self.registered)
                    continue
                if name is None:  # A package is missing here.
                    name = re.search(rf'\("{re.escape(model_type)}", "(\w+)"', source)[1]
                name = {"MistralCommonBackend": "TokenizersBackend"}.get(name, name)
                self.assertEqual(self.registered.get(model_type), name.removesuffix("Fast"))
        self.assertEqual(set(self.registered) - set(self.auto.TOKENIZER_MAPPING_NAMES), set())

    def test_overriding_types(self):
        backend = "TokenizersBackend"
        types = self.auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
        own = {x for x in types if self.auto.TOKENIZER_MAPPING_NAMES[x] != backend}
        self.assertEqual(set(self.overriding), own)

    def test_every_class_is_in_the_table(self):
        ours = {name for name, _ in self.classes} | set(self.unsupported)
        for name in set(self.auto.TOKENIZER_MAPPING_NAMES.values()) - {None}:
            self.assertIn(name.removesuffix("Fast"), ours)

    def test_aliases_have_the_class_of_their_row(self):
        first = {}
        for name, which in self.classes:
            found = self.auto.tokenizer_class_from_name(name)
            self.assertIsNotNone(found, name)
            # CodeGenTokenizer builds GPT2Tokenizer's pipeline without being one.
            if which != "kOther" and name != "CodeGenTokenizer":
                self.assertTrue(issubclass(found, first.setdefault(which, found)), name)
