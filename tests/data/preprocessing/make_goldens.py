#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the rows, the WordPiece tokenizer and goldens.json of this folder: what the preprocessing
of run_glue, run_swag, run_ner and run_qa (transformers 5.23, tokenizers 0.23) makes of the rows.
Offsets are counted in bytes of the text, as finetune counts them.

Needs transformers and tokenizers.
"""
import csv
import json
import os
import pathlib

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, BertTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent

PAIRS = [
    ("The lamp was lit before dusk.", "Someone lit the lamp.", "entails"),
    ("Nobody climbed the stair.", "The keeper climbed the stair twice that night, in the wind and "
     "the rain, with a lantern in his hand and a coil of rope on his shoulder.", "contradicts"),
    ("灯台の明かりがついた。", "明かり", "entails"),
    ("", "An empty text stays a text.", "neutral"),
    ("Emoji \U0001f600 and e\u0301 and \u0638\u0644", "tabs\tand\u3000wide  spaces ", "neutral"),
    ("The sea rose over the rocks while the keeper slept, and the boat was gone in the morning, "
     "with the oars, the nets and all that he had.", "The boat was gone.", "entails"),
]
SWAG = [
    ("The keeper opens the door.", "He", ["goes out.", "closes it again, slowly, and sits down by "
     "the fire to wait for the morning and the boat.", "sings", "is a door."], 1),
    ("海が荒れている。", "船は", ["港に戻る。", "空を飛ぶ。", "歌う", "眠る \U0001f600"], 0),
    ("A very long context that goes on and on about the lamp, the stair, the sea, the wind, the "
     "rain and the rocks below the house.", "Then", ["a", "b", "c, at last", "d"], 3),
]
SENTENCES = [
    (["Ada", "Lovelace", "went", "to", "London", "."], ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]),
    (["lighthousekeeper", "ＮＨＫ", "東京都", "\U0001f600", "unbelievableness"],
     ["O", "B-ORG", "B-LOC", "O", "I-MISC"]),
    (["\u200b", "x", "\u00ad", "Paris", "\ufeff"], ["O", "O", "B-LOC", "B-LOC", "O"]),
    (["long"] * 20 + ["Berlin"], ["O"] * 20 + ["B-LOC"]),
]
SQUAD = [
    ("Light", "The keeper of the light was an old man. He had kept the lamp for forty years, and in "
     "all that time it had never once gone out. On the night of the great storm the glass broke, "
     "and he stood before the flame with his coat held open until the morning came.",
     [("  Who kept the light?", [("an old man", None)]),
      ("For how long had he kept the lamp?", [("forty years", None), ("forty", None)]),
      ("What broke?", [("the glass", None)]),
      ("What was the keeper's name?", []),
      ("Which first word?", [("The", None)])]),
    ("灯台", "灯台（とうだい）は、岬の先端や港湾内に設置され、その外観や灯光によって船舶の航行目標となる"
     "施設\U0001f600である。世界最古の灯台はアレクサンドリアの大灯台とされ、紀元前3世紀に建てられた。",
     [("世界最古の灯台は？", [("アレクサンドリアの大灯台", None)]),
      ("\u3000いつ建てられたか？", [("紀元前3世紀", None)]),
      ("何の目標となるか", [("船舶の航行", None)]),
      ("誰が？", [])]),
]


def byte_offsets(text, offsets):
    """Offsets in code points as offsets in bytes."""
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in offsets]


def make_wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=320, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False)
    texts = [a for a, _, _ in PAIRS] + [b for _, b, _ in PAIRS] + [c for _, c, _ in SQUAD]
    texts += [w for words, _ in SENTENCES for w in words]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    folder = HERE / "wordpiece"
    BertTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def write_rows():
    def dump(name, value):
        (HERE / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")

    with open(HERE / "pairs.jsonl", "w") as file:
        for a, b, label in PAIRS:
            row = {"idx": 1, "sentence1": a, "sentence2": b, "label": label}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    with open(HERE / "swag.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["sent1", "sent2", "ending0", "ending1", "ending2", "ending3", "label"])
        for context, start, endings, label in SWAG:
            rows.writerow([context, start, *endings, label])
    dump("ner.json", {"data": [{"id": str(i), "tokens": w, "ner_tags": t}
                               for i, (w, t) in enumerate(SENTENCES)]})
    articles = []
    for number, (title, context, questions) in enumerate(SQUAD):
        qas = []
        for i, (question, answers) in enumerate(questions):
            qas.append({"id": f"{number}-{i}", "question": question, "is_impossible": not answers,
                        "answers": [{"text": text, "answer_start": context.index(text)}
                                    for text, _ in answers]})
        articles.append({"title": title, "paragraphs": [{"context": context, "qas": qas}]})
    dump("squad.json", {"version": "v2.0", "data": articles})


def sample(encoding):
    result = {"ids": encoding["input_ids"]}
    if any(encoding.get("token_type_ids", [])):
        result["types"] = encoding["token_type_ids"]
    return result


def glue(tokenizer, length):
    label_list = sorted({label for _, _, label in PAIRS})
    samples = []
    for a, b, label in PAIRS:
        encoding = tokenizer(a, b, max_length=length, truncation=True)
        samples.append({**sample(encoding), "label": label_list.index(label)})
    return samples


def glue_single(tokenizer, length):
    label_list = sorted({label for _, _, label in PAIRS})
    return [{**sample(tokenizer(b, max_length=length, truncation=True)),
             "label": label_list.index(label)} for _, b, label in PAIRS]


def swag(tokenizer, length):
    samples = []
    for context, start, endings, label in SWAG:
        encoding = tokenizer([context] * 4, [f"{start} {end}" for end in endings],
                             truncation=True, max_length=length)
        for i, ids in enumerate(encoding["input_ids"]):
            types = encoding["token_type_ids"][i] if "token_type_ids" in encoding else []
            samples.append({**sample({"input_ids": ids, "token_type_ids": types}), "label": label})
    return samples


def ner(tokenizer, length, label_all_tokens):
    label_list = sorted({label for _, labels in SENTENCES for label in labels})
    inside = []
    for index, label in enumerate(label_list):
        other = label.replace("B-", "I-")
        known = label.startswith("B-") and other in label_list
        inside.append(label_list.index(other) if known else index)
    samples = []
    for words, tags in SENTENCES:
        encoding = tokenizer(words, truncation=True, max_length=length, is_split_into_words=True)
        labels, before = [], None
        for word in encoding.word_ids():
            if word is None:
                labels.append(-100)
            elif word != before:
                labels.append(label_list.index(tags[word]))
            else:
                labels.append(inside[label_list.index(tags[word])] if label_all_tokens else -100)
            before = word
        samples.append({**sample(encoding), "labels": labels,
                        "words": [-1 if w is None else w for w in encoding.word_ids()]})
    return samples


def squad(tokenizer, length, stride):
    right = tokenizer.padding_side == "right"
    samples = []
    number = -1
    for _, context, questions in SQUAD:
        for question, answers in questions:
            number += 1
            question = question.lstrip()
            encoding = tokenizer(
                question if right else context, context if right else question,
                truncation="only_second" if right else "only_first", max_length=length,
                stride=stride, return_overflowing_tokens=True, return_offsets_mapping=True)
            for i, ids in enumerate(encoding["input_ids"]):
                offsets = encoding["offset_mapping"][i]
                sequence = encoding.sequence_ids(i)
                inside = [k for k, s in enumerate(sequence) if s == (1 if right else 0)]
                start = end = ids.index(tokenizer.cls_token_id)
                if answers:
                    first = context.index(answers[0][0])
                    last = first + len(answers[0][0])
                    if offsets[inside[0]][0] <= first and offsets[inside[-1]][1] >= last:
                        # run_qa also walks over the special tokens behind the context, whose
                        # offsets are 0, and then points there.
                        start = max(k for k in inside if offsets[k][0] <= first)
                        end = min(k for k in inside if offsets[k][1] >= last)
                types = encoding["token_type_ids"][i] if "token_type_ids" in encoding else []
                ranges = byte_offsets(context, [offsets[k] for k in inside if length < 100])
                samples.append({**sample({"input_ids": ids, "token_type_ids": types}),
                                "start": start, "end": end, "question": number,
                                "first": inside[0], "ranges": ranges})
    return samples


def main():
    write_rows()
    wordpiece = make_wordpiece()
    cases = []
    for name, folder in [("tokenizers/lighthouse", TESTS / "tokenizers" / "lighthouse"),
                         ("preprocessing/wordpiece", wordpiece)]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        split = tokenizer
        if "lighthouse" in name:
            split = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
        left = AutoTokenizer.from_pretrained(folder, padding_side="left")
        add = lambda task, samples, **options: cases.append(
            {"tokenizer": name, "task": task, **options, "samples": samples})
        for length in (16, 64):
            add("pairs", glue(tokenizer, length), length=length)
        add("single", glue_single(tokenizer, 12), length=12)
        add("swag", swag(tokenizer, 24), length=24)
        for everywhere in (False, True):
            add("ner", ner(split, 24, everywhere), length=24, label_all_tokens=everywhere)
        add("squad", squad(tokenizer, 64, 16), length=64, stride=16, left=False)
        add("squad", squad(tokenizer, 384, 128), length=384, stride=128, left=False)
        add("squad", squad(left, 64, 20), length=64, stride=20, left=True)
    text = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    (HERE / "goldens.json").write_text("[" + text + "]\n")


if __name__ == "__main__":
    main()
