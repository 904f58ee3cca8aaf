#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes questions of JCommonsenseQA (JGLUE) as chat rows, for configs/chat.yaml:

    scripts/make_chat_rows.py jcommonsenseqa-train.jsonl train.jsonl --rows 500

The user's message has the question and its numbered choices, the assistant's the number and the
text of the right one. With --pairs each row has the same question as prompt, the right answer as
chosen and a choice of the next question as rejected, for configs/dpo.yaml."""

import argparse
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("input", help="JSON lines with question, choice0 to choice4 and label")
parser.add_argument("output")
parser.add_argument("--rows", type=int, help="only the first N rows")
parser.add_argument("--pairs", action="store_true", help="preferences instead of conversations")
arguments = parser.parse_args()

with open(arguments.input, encoding="utf-8") as lines, open(arguments.output, "w", encoding="utf-8") as out:
    rows = [json.loads(line) for line in lines]
    for number, row in enumerate(rows[: arguments.rows]):
        choices = [row[f"choice{i}"] for i in range(5)]
        question = row["question"] + "\n" + "\n".join(f"{i + 1}. {choice}" for i, choice in enumerate(choices))
        right = row["label"]
        wrong = rows[(number + 1) % len(rows)][f"choice{right}"]
        question = [{"role": "user", "content": question}]
        texts = (f"{right + 1}. {choices[right]}", f"{right + 1}. {wrong}")
        answers = [[{"role": "assistant", "content": text}] for text in texts]
        if arguments.pairs:
            record = {"prompt": question, "chosen": answers[0], "rejected": answers[1]}
        else:
            record = {"messages": question + answers[0]}
        out.write(json.dumps(record, ensure_ascii=False) + "\n")
