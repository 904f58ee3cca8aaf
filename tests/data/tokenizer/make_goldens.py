# SPDX-License-Identifier: MIT
"""Writes the goldens of tests/tokenizer with the tokenizers and sentencepiece packages.

    python tests/data/tokenizer/make_goldens.py

corpus.txt          what the small vocabulary is learnt from (written here, public domain)
base.json           tokenizer.json of that vocabulary, as transformers saves a RobertaTokenizer
base_config.json    tokenizer_config.json beside it
vocab.json, merges.txt   the same in the older files
cases.json          variants of base.json and what they make of texts
unigram.model, bpe.model   SentencePiece models, and sentencepiece.json with their ids
"""
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import RobertaTokenizer, XLMRobertaTokenizer

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
CORPUS = """La suno brilas super la maro, kaj la ŝipoj revenas al la haveno.
La fiŝistoj portas la fiŝojn al la bazaro; la infanoj kuras tra la stratoj kaj kantas.
En la vespero la maljunulo rakontas pri la vento, pri la steloj kaj pri la longa vojo.
The sea was calm that morning, and the old lighthouse keeper counted 1,234 waves.
It's easy, he'd say: you'll count them, they've always come, I'm sure we're not alone.
"Don't wait," she said; "it's 7:45 -- the boat won't!"   Then   she   left.
朝の海は静かで、古い灯台の番人は波を数えた。東京から大阪まで三時間かかる。
Привет, море! Привет, ветер! Ångström, naïve, café, Zoë, ĉĝĥĵŝŭ.
\tif (x == 42) { return y[0]; }  // 0x2A
Emoji: 🙂🙃 👩‍👩‍👧 and symbols ½ ² Ⅷ ٣ — … « » € ™
\tLine with CR\r
  two leading spaces and two trailing  

The end, the end, the end.
""" * 2


def flags(content, token_id, **changed):
    token = dict(id=token_id, content=content, single_word=False, lstrip=False, rstrip=False,
                 normalized=False, special=True)
    token.update(changed)
    return token


def byte_level(add_prefix_space=False, use_regex=True):
    return dict(type="ByteLevel", add_prefix_space=add_prefix_space, trim_offsets=True,
                use_regex=use_regex)


def texts():
    rng = random.Random(7)
    fixed = [
        "", " ", "   ", "\n", " \n\n a", "Hello world", " Hello", "it's they'll 'S 's' ''re", "a  b   c ",
        "x<mask>y", "x <mask> y", "x  <mask>  y", "<s><pad></s>", "<mask><mask> <mask>", "word<x>word <x> <x>",
        "<xx> <x x> <X>", "don't DON'T", "123abc456", "½²Ⅷ٣", "a\u00a0b\u3000c\u2028d\u0085e", "e\u0301 é \u1e9b\u0323",
        "ﬁ ２ Ⅷ ㍿ 한국어 각", "İstanbul ΑΣ ΣΑΣ", "\u0000 \u0001 \u007f", "👩‍👩‍👧 🙂", "\ufeffbom", "ab" * 60,
        "a" * 70 + " " + "b" * 49, "朝の海" * 20, " <w> a<w> <w>b é<w> _<w> -<w>- 1<w>", "new<n>line<n>", "CAFÉ<n>Ｘ",
        "\U0001e030 \ua7cb \u1c89 \U00011930\U00011935", "x\u0300\u0323\u1ab0",
    ]
    alphabet = list("aAzéÅ1٣½ '’s.,-<>_\t\n\r\u00a0\u3000\u200b\u2028朝海のカ한Ж🙂\u0301\u0323\u200d!ﬁ") + [
        "<mask>", "<x>", "<w>", "<n>", "'ll", " the", "  ", "</s>"]
    for _ in range(140):
        fixed.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 24))))
    while len(fixed) < 235:  # anything that Unicode has
        points = [rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x110000)]) for _ in range(8)]
        fixed.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
    return fixed


def variants(size):
    x = flags("<x>", size)
    added = [flags(token, i) for i, token in enumerate(SPECIAL)]
    with_mask = added[:4] + [flags("<mask>", 4, lstrip=True)]
    template = dict(type="TemplateProcessing", pair=[],
                    single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                            {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}}],
                    special_tokens={t: {"id": t, "ids": [i], "tokens": [t]} for i, t in enumerate(SPECIAL)})
    template["pair"] = template["single"] + [{"Sequence": {"id": "B", "type_id": 1}}]
    yield "plain", {}
    yield "prefix space", dict(pre_tokenizer=byte_level(True))
    yield "mask takes the space before it", dict(added_tokens=with_mask)
    yield "prefix space and mask", dict(pre_tokenizer=byte_level(True), added_tokens=with_mask)
    yield "both sides", dict(added_tokens=added + [flags("<x>", size, lstrip=True, rstrip=True),
                                                   flags("<w>", size + 1, single_word=True)])
    yield "longest of several", dict(added_tokens=added + [x, flags("<xx>", size + 1), flags("<x x>", size + 2),
                                                           flags("ab", size + 3, special=False)])
    yield "normalised tokens", dict(normalizer=dict(type="Lowercase"), added_tokens=added + [
        flags("<X>", size, normalized=True, special=False), flags("É<n>", size + 1, normalized=True),
        flags("<n>", size + 2, rstrip=True)])
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
        yield form, dict(normalizer=dict(type=form))
    yield "steps", dict(normalizer=dict(type="Sequence", normalizers=[
        dict(type="NFKC"), dict(type="Strip", strip_left=True, strip_right=False), dict(type="Lowercase"),
        dict(type="Replace", pattern={"String": "a"}, content="oo"), dict(type="Prepend", prepend="x ")]))
    yield "whole text is one word", dict(pre_tokenizer=byte_level(False, False))
    yield "sequence", dict(pre_tokenizer=dict(type="Sequence", pretokenizers=[byte_level(True)]),
                           post_processor=dict(type="Sequence", processors=[byte_level(), template]))
    yield "no processor", dict(post_processor=None)


def make_case(name, base, changes):
    tokenizer = Tokenizer.from_str(json.dumps({**base, **changes}))
    case = dict(name=name, changes=changes, ids=[], with_special=tokenizer.encode("La suno").ids)
    count = len(texts()) if name in ("plain", "prefix space and mask", "normalised tokens", "steps") else 80
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts()[:count]]
    case["ids"] = encoded
    if name in ("plain", "both sides", "no processor"):
        # Cut ids, too: half of a character must decode to U+FFFD.
        case["decoded"] = [tokenizer.decode([0] + ids[1:], skip_special_tokens=False) for ids in encoded]
        case["skipped"] = [tokenizer.decode([0] + ids[1:], skip_special_tokens=True) for ids in encoded]
    return case


def make_models(result):
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv")
    for source, target in (("Ａ", "A"), ("Ｘ", "X"), ("２", "2"), ("ﬁ", "fi"), ("\t", " "), ("\u3000", " "), ("e\u0301", "é"),
                           ("\u00a0", " "), ("\u0301", "")):
        rules.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
    rules.flush()
    for kind, size in (("unigram", 180), ("bpe", 220)):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for line in CORPUS.split("\n") if line.strip()]), model_writer=model,
            model_type=kind, vocab_size=size, character_coverage=0.99, minloglevel=2, num_threads=1,
            user_defined_symbols=[] if kind == "unigram" else ["<x>", "<x><y>"],
            # A few rules only: those of NFKC take 240 kB.
            **(dict(normalization_rule_tsv=rules.name) if kind == "unigram" else dict(normalization_rule_name="identity")))
        (HERE / f"{kind}.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        rows = []
        for text in texts():
            if "\u0000" in text:
                continue
            ids = processor.encode(text)
            rows.append(dict(text=text, ids=ids, decoded=processor.decode(ids)))
        result[kind] = rows
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "sentencepiece.bpe.model").write_bytes((HERE / "unigram.model").read_bytes())
        (path / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
        tokenizer = XLMRobertaTokenizer.from_pretrained(folder)
        plain = ["La suno brilas super la maro.", "It's easy, he'd say.", "x<mask>y", "x <mask> y", "kaj la <mask> .",
                 "朝の海は静か", "  two  spaces ", "Q@#"]
        result["xlm_roberta"] = [
            dict(text=text, ids=tokenizer(text)["input_ids"],
                 decoded=tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)) for text in plain]
        result["xlm_roberta_size"] = len(tokenizer)


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    (HERE / name).write_text(text.replace('},{"', '},\n{"') + "\n")


def main():
    (HERE / "corpus.txt").write_text(CORPUS, newline="")
    trained = ByteLevelBPETokenizer()
    trained.train([str(HERE / "corpus.txt")], vocab_size=420, min_frequency=2, special_tokens=SPECIAL, show_progress=False)
    trained.save_model(str(HERE))
    tokenizer = RobertaTokenizer(vocab=str(HERE / "vocab.json"), merges=str(HERE / "merges.txt"), model_max_length=128)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for source, target in (("tokenizer.json", "base.json"), ("tokenizer_config.json", "base_config.json")):
            (HERE / target).write_bytes((pathlib.Path(folder) / source).read_bytes())
    base = json.loads((HERE / "base.json").read_text())
    size = len(base["model"]["vocab"])
    cases = [make_case(name, base, changes) for name, changes in variants(size)]
    write("cases.json", dict(texts=texts(), cases=cases))
    models = {}
    make_models(models)
    write("sentencepiece.json", models)


if __name__ == "__main__":
    main()
