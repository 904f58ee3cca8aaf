#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes questions of JCommonsenseQA (JGLUE) as chat rows, for configs/chat.yaml:

    scripts/make_chat_rows.py jcommonsenseqa-train.jsonl train.jsonl --rows 500

The user's message has the question and its numbered choices, the assistant's the number and the
text of the right one."""

import argparse
import json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("input", help="JSON lines with question, choice0 to choice4 and label")
parser.add_argument("output")
parser.add_argument("--rows", type=int, help="only the first N rows")
arguments = parser.parse_args()

with open(arguments.input, encoding="utf-8") as lines, open(arguments.output, "w", encoding="utf-8") as out:
    for number, line in enumerate(lines):
        if number == arguments.rows:
            break
        row = json.loads(line)
        choices = [row[f"choice{i}"] for i in range(5)]
        question = row["question"] + "\n" + "\n".join(f"{i + 1}. {choice}" for i, choice in enumerate(choices))
        answer = f"{row['label'] + 1}. {choices[row['label']]}"
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
