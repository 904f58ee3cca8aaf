# SPDX-License-Identifier: MIT
"""Writes components.json beside this file with the tokenizers package 0.23.3: small tokenizers with
every kind of normalizer, pre-tokenizer, post-processor and decoder, and what they make of texts.

    python tests/data/tokenizer/make_component_goldens.py
"""

import json
import pathlib

from tokenizers import Tokenizer, models, trainers

HERE = pathlib.Path(__file__).resolve().parent
CORPUS = (HERE / "corpus.txt").read_text().split("\n")
BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ANGLES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [
    "", " ", "La suno brilas.", "  two  spaces ", "It's easy, he'd say!", "x<mask>y  <mask> z", "[MASK] a [SEP]b",
    "CAFÉ café Ａ ﬁ ½ 3.14", "İstanbul ΑΣ", "朝の海は静か", "日本 語", "e\u0301 \u0301a q\u0323\u0307", "ậ… Việt", "a\u0344b", "각 \u1100\u1161\u11a8",
    "\u0000a\u0001b\tc\u007f", "\u200bx\u200d\ufeff", "\u3000a\u00a0b\u2028", "👩\u200d👩\u200d👧 🇯🇵 👍🏽", "مرحبا שלום", "a_b-c—d…", "supercalifragilistic",
    "z" * 101, "\u0378\U0010ffff", "don't DO NOT  the THE theé",
]  # fmt: skip


def item(type_, **fields):
    return {"type": type_, **fields}


def sequence(kind, *items):
    return item("Sequence", **{kind: list(items)})


def bert(**more):
    return item(
        "BertNormalizer",
        **{
            **dict(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
            **more,
        },
    )


def flags(id_, content, **more):
    return {
        **dict(
            id=id_,
            content=content,
            single_word=False,
            lstrip=False,
            rstrip=False,
            normalized=False,
            special=True,
        ),
        **more,
    }


def byte_level(**more):
    return item(
        "ByteLevel", **{**dict(add_prefix_space=True, trim_offsets=True, use_regex=True), **more}
    )


def metaspace(scheme, split=True):
    return item("Metaspace", replacement="▁", prepend_scheme=scheme, split=split)


def template(cls, sep, type_):
    special = lambda token, kind: {"SpecialToken": {"id": token, "type_id": kind}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    single = [special(cls[0], 0), text("A", 0), special(sep[0], 0)]
    return item(
        "TemplateProcessing",
        single=single,
        pair=[*single, text("B", type_), special(sep[0], type_)],
        special_tokens={t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (cls, sep)},
    )


def made(model, parts, trainer=None):
    """A tokenizer.json of `parts`; a trainer only where it gives the same ids every time."""
    tokenizer = Tokenizer(model)
    base = {**json.loads(tokenizer.to_str()), **parts, "added_tokens": [], "post_processor": None}
    tokenizer = Tokenizer.from_str(json.dumps(base))
    if trainer:
        tokenizer.train_from_iterator(CORPUS + [text for text in TEXTS if len(text) < 20], trainer)
    else:
        tokenizer.add_special_tokens(BRACKETS)
    result = json.loads(tokenizer.to_str())
    result["post_processor"] = parts.get("post_processor")
    result["added_tokens"] += parts.get("added_tokens", [])
    return result


def wordpiece_vocabulary():
    lines = CORPUS + TEXTS[:16]
    chars = sorted(set("".join(lines).lower()) - set(" \n"))[:150]
    words = [word for word in sorted(set(" ".join(lines).split())) if word.isalpha()][:60]
    tokens = [
        *BRACKETS,
        *chars,
        *("##" + c for c in chars if c.isalpha()),
        "##il",
        "##la",
        "La",
        "é",
    ]
    return {token: id_ for id_, token in enumerate(dict.fromkeys([*tokens, *words]))}


def wordpiece(**parts):
    parts = {
        "normalizer": bert(),
        "pre_tokenizer": item("BertPreTokenizer"),
        "decoder": item("WordPiece", prefix="##", cleanup=True),
        "post_processor": template(("[CLS]", 2), ("[SEP]", 3), 1),
        **parts,
    }
    return made(models.WordPiece(wordpiece_vocabulary(), unk_token="[UNK]"), parts)


def bpe(model=None, **parts):
    trainer = trainers.BpeTrainer(
        vocab_size=210,
        special_tokens=ANGLES,
        show_progress=False,
    )
    return made(models.BPE(unk_token="<unk>", **(model or {})), parts, trainer)


def cases():
    regex = lambda pattern: {"Regex": pattern}
    split = lambda pattern, behavior, invert=False: item(
        "Split", pattern=pattern, behavior=behavior, invert=invert
    )
    roberta = item(
        "RobertaProcessing",
        sep=["</s>", 2],
        cls=["<s>", 0],
        trim_offsets=True,
        add_prefix_space=True,
    )
    yield "BERT uncased", wordpiece()
    yield "BERT cased", wordpiece(normalizer=bert(lowercase=False))
    yield "BERT with accents", wordpiece(normalizer=bert(strip_accents=False, clean_text=False))
    yield (
        "BERT without spaces around ideographs",
        wordpiece(normalizer=bert(handle_chinese_chars=False, lowercase=False, strip_accents=True)),
    )
    yield (
        "BertProcessing",
        wordpiece(
            post_processor=item("BertProcessing", sep=["[SEP]", 3], cls=["[CLS]", 2]), decoder=None
        ),
    )
    yield (
        "added tokens",
        wordpiece(
            post_processor=item(
                "RobertaProcessing",
                sep=["[SEP]", 3],
                cls=["[CLS]", 2],
                trim_offsets=True,
                add_prefix_space=False,
            ),
            added_tokens=[
                flags(400, "<mask>", lstrip=True),
                flags(401, "É", rstrip=True, normalized=True, special=False),
                flags(402, "the", single_word=True, normalized=True, special=True),
            ],
        ),
    )
    for form in ("NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "Lowercase"):
        yield (
            form,
            bpe(
                normalizer=item(form),
                pre_tokenizer=byte_level(),
                decoder=byte_level(),
                post_processor=roberta,
            ),
        )
    yield (
        "many normalizers",
        bpe(
            normalizer=sequence(
                "normalizers",
                item("NFKC"),
                item("Strip", strip_left=True, strip_right=True),
                item("Prepend", prepend="x "),
                item("Replace", pattern={"String": "a"}, content="oo"),
                item("Replace", pattern=regex(" {2,}"), content="▁"),
                item("Replace", pattern=regex(r"\s"), content=""),
            ),
            pre_tokenizer=byte_level(add_prefix_space=False),
            decoder=byte_level(),
            post_processor=byte_level(add_prefix_space=False),
        ),
    )
    yield (
        "ByteLevel normalizer",
        bpe(
            normalizer=item("ByteLevel"),
            pre_tokenizer=item("WhitespaceSplit"),
            decoder=byte_level(),
        ),
    )
    yield (
        "ByteLevel before Punctuation",
        bpe(
            pre_tokenizer=sequence(
                "pretokenizers", byte_level(), item("Punctuation", behavior="MergedWithNext")
            ),
            decoder=byte_level(),
        ),
    )
    yield (
        "Digits before ByteLevel",
        bpe(
            pre_tokenizer=sequence(
                "pretokenizers",
                item("Digits", individual_digits=True),
                byte_level(add_prefix_space=False),
            ),
            decoder=byte_level(),
            post_processor=sequence(
                "processors", byte_level(), template(("<s>", 0), ("</s>", 2), 1)
            ),
        ),
    )
    for scheme in ("always", "first", "never"):
        yield (
            f"Metaspace {scheme}",
            bpe(
                pre_tokenizer=metaspace(scheme, scheme != "first"),
                decoder=metaspace(scheme),
                post_processor=template(("<s>", 0), ("</s>", 2), 0),
            ),
        )
    yield (
        "Whitespace",
        bpe(
            pre_tokenizer=item("Whitespace"),
            decoder=sequence(
                "decoders",
                item("Replace", pattern={"String": "a"}, content="b"),
                item("Strip", content="s", start=1, stop=0),
                item("Fuse"),
            ),
        ),
    )
    yield (
        "suffix",
        bpe(
            dict(end_of_word_suffix="</w>", continuing_subword_prefix="@@", fuse_unk=True),
            pre_tokenizer=sequence(
                "pretokenizers",
                item("WhitespaceSplit"),
                item("Digits", individual_digits=False),
                item("CharDelimiterSplit", delimiter="a"),
            ),
            decoder=item("BPEDecoder", suffix="</w>"),
        ),
    )
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield (
            f"Split {behavior}",
            bpe(
                pre_tokenizer=sequence(
                    "pretokenizers",
                    split(regex(r"[^\s\p{L}]+|\p{N}{1,3}|\s+(?!\S)|\w\S"), behavior),
                    split({"String": "e"}, behavior, True),
                )
            ),
        )
        yield f"Punctuation {behavior}", bpe(pre_tokenizer=item("Punctuation", behavior=behavior))
    yield "nothing but a model", bpe()


def goldens(tokenizer):
    pairs = list(zip(TEXTS, TEXTS[1:]))
    plain = tokenizer.encode_batch(TEXTS, add_special_tokens=False)
    both = tokenizer.encode_batch(pairs)
    return dict(
        ids=[e.ids for e in plain],
        offsets=[[x for pair in e.offsets for x in pair] for e in plain],
        pair_ids=[e.ids for e in both],
        pair_types=["".join(map(str, e.type_ids)) for e in both],
        decoded=[tokenizer.decode(e.ids, skip_special_tokens=False) for e in both],
        skipped=[tokenizer.decode(e.ids, skip_special_tokens=True) for e in both[:8]],
    )


def main():
    result = []
    for name, parts in cases():
        tokenizer = Tokenizer.from_str(json.dumps(parts))
        result.append(
            dict(name=name, tokenizer=json.loads(tokenizer.to_str()), **goldens(tokenizer))
        )
    text = json.dumps(dict(texts=TEXTS, cases=result), ensure_ascii=False, separators=(",", ":"))
    (HERE / "components.json").write_text(text.replace('},{"name"', '},\n{"name"') + "\n")


if __name__ == "__main__":
    main()
