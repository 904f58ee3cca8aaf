#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/fixtures/tasks: small labelled files about the lighthouse, one kind for each task. They
are what the examples in configs/ and the tests learn from. Python's random module, whose numbers
are the same everywhere, picks the words; nothing of it is anyone's text (CC0 1.0).

tests/fixtures/tokenizers has two tokenizers for the examples, both small enough to be files of the
project: `causal` is `lighthouse` with <s> before a text and nothing after it, as Llama's, so that a
prompt is not ended by </s>; `words` is what `finetune tokenizer train --type byte_level_bpe
--vocab_size 600 --add_prefix_space --model_max_length 128` writes for the words of
names-train.jsonl, one sentence per line, so that each name is one token."""

import itertools
import json
import random
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tasks"
CALM = [
    "The sea was calm",
    "The night was clear",
    "A soft wind came from the south",
    "The stars were out",
]
ROUGH = [
    "A storm broke the glass",
    "Great waves ran over the rocks",
    "The rain came in sheets",
    "The wind tore at the door",
]
WORK = [
    "I cleaned the lamp",
    "I wrote in the book",
    "Thomas played the fiddle",
    "We mended the boat",
    "I trimmed the wick",
    "I wound the clock",
]
TIMES = [
    "in the morning",
    "at noon",
    "before supper",
    "at night",
    "on Sunday",
    "after the letters came",
]
PEOPLE = ["Jonas Hale", "Thomas", "Anna Hale", "Captain Reed"]
PLACES = ["Grey Rock", "the North Sea", "Saint Mary", "Port Ellen"]
SHIPS = ["Morning Star", "Good Hope", "Swallow", "Young Peter"]
CARGO = ["wheat", "coal", "salt", "timber", "letters", "flour"]


def lines(name, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (FOLDER / name).write_text(text)


def splits(name, rows, train, valid):
    """Training, validation and test file. All have labels, so that a report can judge the
    predictions of the test file."""
    lines(f"{name}-train.jsonl", rows[:train])
    lines(f"{name}-valid.jsonl", rows[train : train + valid])
    lines(f"{name}-test.jsonl", rows[train + valid :])


def weather(rng):
    rows = []
    for label, openings in (("calm", CALM), ("rough", ROUGH)):
        for opening, work, when in itertools.product(openings, WORK, TIMES):
            rows.append({"text": f"{opening}. {work} {when}.", "label": label})
    rng.shuffle(rows)
    return rows[:104]


def likeness(rng):
    """Pairs with a number: how much of weather, work and time two sentences share."""
    rows = []
    while len(rows) < 104:
        a, b = ([rng.choice(CALM + ROUGH), rng.choice(WORK), rng.choice(TIMES)] for _ in range(2))
        for i in range(3):
            if rng.random() < 0.5:
                b[i] = a[i]
        score = sum(x == y for x, y in zip(a, b)) * 2.5 / 1.5
        first, second = (f"{x[0]}. {x[1]} {x[2]}." for x in (a, b))
        rows.append({"sentence1": first, "sentence2": second, "label": round(score, 1)})
    return rows


def topics(rng):
    """Texts with several labels at once."""
    rows = []
    for opening, work, when in itertools.product(CALM + ROUGH, WORK, TIMES):
        labels = ["calm" if opening in CALM else "rough"]
        if work.startswith("We") or work.startswith("Thomas"):
            labels.append("company")
        if "lamp" in work or "wick" in work:
            labels.append("light")
        rows.append({"text": f"{opening}. {work} {when}.", "label": sorted(labels)})
    rng.shuffle(rows)
    return rows[:104]


def choices(rng):
    facts = {
        "Who keeps the light?": "the keeper",
        "What does the lamp burn?": "oil",
        "What brings the letters?": "the boat",
        "What breaks on the rocks?": "the waves",
        "What does Thomas play?": "the fiddle",
        "Where does the lamp stand?": "the tower",
        "What does the clock tell?": "the hour",
        "What grows behind the wall?": "the garden",
    }
    rows = []
    for _ in range(13):
        for question, answer in facts.items():
            options = rng.sample([a for a in facts.values() if a != answer], 3)
            label = rng.randrange(4)
            options.insert(label, answer)
            rows.append(
                {
                    "question": question,
                    **{f"choice{i}": o for i, o in enumerate(options)},
                    "label": label,
                }
            )
    rng.shuffle(rows)
    return rows


def watches(rng):
    """Typed questions about an entry of the log, each with an answer or with probabilities."""
    who = {"the keeper": "The entry says I", "Thomas": None, "several": "The entry says we"}
    hours = {"in the morning": 0, "at noon": 1, "before supper": 1.5, "at night": 2}
    rows = []
    for opening, work, when in itertools.product(CALM + ROUGH, WORK, TIMES):
        name = "Thomas" if work.startswith("Thomas") else "several" if work.startswith("We") else "the keeper"
        text = f"{opening}. {work} {when}."
        questions = {
            "rough": {"type": "noul", "instructions": "Is the weather rough?"},
            "who": {"type": "choice", "instructions": "Who works?", "criteria": who},
        }
        expected = {"rough": opening in ROUGH, "who": name}
        if when in hours:
            levels = ["morning", "noon", "night"]
            questions["hour"] = {"type": "score", "instructions": "How late is it?", "criteria": levels}
            expected["hour"] = hours[when]
        row = {"state": {"log": text} if rng.random() < 0.5 else text, "questions": questions}
        if rng.random() < 0.25:
            sure = {option: 0.9 if option == name else 0.05 for option in who}
            row["gold"] = {"who": {"probabilities": sure}}
            del expected["who"]
        rows.append({**row, "expected": expected})
    rng.shuffle(rows)
    return rows[:104]


def names(rng):
    rows = []
    for i in range(104):
        parts = []
        for kind, text in rng.choice(
            [
                [
                    ("PER", rng.choice(PEOPLE)),
                    (None, "came to"),
                    ("LOC", rng.choice(PLACES)),
                    (None, "with letters ."),
                ],
                [
                    (None, "The brig"),
                    ("SHIP", rng.choice(SHIPS)),
                    (None, "passed"),
                    ("LOC", rng.choice(PLACES)),
                    (None, "."),
                ],
                [
                    ("PER", rng.choice(PEOPLE)),
                    (None, "saw the"),
                    ("SHIP", rng.choice(SHIPS)),
                    (None, "at noon ."),
                ],
            ]
        ):
            for j, word in enumerate(text.split()):
                parts.append((word, "O" if kind is None else ("B-" if j == 0 else "I-") + kind))
        rows.append(
            {"id": str(i), "tokens": [p[0] for p in parts], "ner_tags": [p[1] for p in parts]}
        )
    return rows


def squad(rng, count, start):
    data = []
    for i in range(start, start + count):
        ship, cargo, place, when = (rng.choice(x) for x in (SHIPS, CARGO, PLACES, TIMES))
        work = rng.choice(WORK)
        context = f"{rng.choice(CALM + ROUGH)}. The brig {ship} passed {when} with {cargo}, bound for {place}. {work} {rng.choice(TIMES)}."
        qas = []
        for question, answer in (
            (f"What did the {ship} carry?", cargo),
            (f"Where was the {ship} bound for?", place),
            ("Which brig passed?", ship),
        ):
            spot = context.index(answer, context.index("The brig"))
            qas.append(
                {
                    "id": f"{i}-{len(qas)}",
                    "question": question,
                    "answers": [{"text": answer, "answer_start": spot}],
                }
            )
        data.append({"title": f"Day {i}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "lighthouse", "data": data}


def voyages(rng, count):
    """Articles for the example of question answering: enough contexts for a new model to learn where
    answers are, and of several forms, so that it answers for sentences that it has not seen."""
    data = []
    for i in range(count):
        ship, cargo, place = (rng.choice(x) for x in (SHIPS, CARGO, PLACES))
        passed = rng.choice(["passed", f"passed {rng.choice(TIMES)}"])
        parts = [f"The brig {ship} {passed} with {cargo}, bound for {place}."]
        start = 0
        if rng.random() < 0.75:
            parts.insert(0, f"{rng.choice(CALM + ROUGH)}.")
            start = len(parts[0])
        if rng.random() < 0.5:
            parts.append(f"{rng.choice(WORK)} {rng.choice(TIMES)}.")
        context = " ".join(parts)
        qas = []
        for question, phrase, answer in (
            (f"What did the {ship} carry?", f"with {cargo}", cargo),
            (f"Where was the {ship} bound for?", f"bound for {place}", place),
            ("Which brig passed?", f"brig {ship}", ship),
        ):
            spot = context.index(phrase, start) + len(phrase) - len(answer)
            answers = [{"text": answer, "answer_start": spot}]
            qas.append({"id": f"v{i}-{len(qas)}", "question": question, "answers": answers})
        data.append({"title": f"Voyage {i}", "paragraphs": [{"context": context, "qas": qas}]})
    articles = ",\n".join(json.dumps(article) for article in data)
    return f'{{"version": "lighthouse", "data": [\n{articles}\n]}}\n'


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    splits("weather", weather(random.Random(1)), 72, 24)
    splits("likeness", likeness(random.Random(2)), 72, 24)
    splits("topics", topics(random.Random(6)), 72, 24)
    splits("choices", choices(random.Random(3)), 72, 24)
    splits("names", names(random.Random(4)), 72, 24)
    splits("watches", watches(random.Random(8)), 72, 24)
    rng = random.Random(5)
    for part, count, start in (("train", 24, 0), ("valid", 8, 24), ("test", 4, 32)):
        text = json.dumps(squad(rng, count, start), ensure_ascii=False, indent=1)
        (FOLDER / f"cargo-{part}.json").write_text(text + "\n")
    rng = random.Random(7)
    for part, count in (("train", 150), ("valid", 8), ("test", 4)):
        (FOLDER / f"voyages-{part}.json").write_text(voyages(rng, count))


if __name__ == "__main__":
    main()
