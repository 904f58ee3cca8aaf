#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replaces the tables of the documentation that the binary prints: those of docs/configuration.md, and in
docs/coming-from-transformers.md what each field of TrainingArguments does here.

    replace_tables.py --binary build/finetune [--check]    --check: fail where a table is out of date
"""

import argparse
import json
import re
import subprocess
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = ROOT / "tests/fixtures/config/hf_training_arguments.json"
# Descriptions of fields that do not support every value of transformers.
ONLY = re.compile(r"(?:In this version only: (.*)|Another value is (.*))\.$")
NO_EFFECT = re.compile(r"No effect: (.*)\.$")


def output_of(binary, *words):
    return subprocess.run([binary, "config", *words], check=True, text=True, stdout=subprocess.PIPE).stdout


def table(head, rows):
    lines = [head, "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)]
    return "\n".join(lines) + "\n"


def fields_of_transformers(binary):
    """Each field of TrainingArguments: supported, supported with some values, accepted without effect."""
    properties = json.loads(output_of(binary, "schema"))["properties"]
    fields = json.loads(FIELDS.read_text(encoding="utf-8"))
    taken, limited, ignored = [], [], []
    for name in fields["defaults"]:
        description = properties[name]["description"]  # every field is a key
        only, no_effect = ONLY.search(description), NO_EFFECT.search(description)
        if only:
            limited.append((name, f"only {only[1]}" if only[1] else f"another value is {only[2]}"))
        elif no_effect:
            ignored.append((name, no_effect[1]))
        else:
            taken.append(f"`{name}`")
    same = (f"Every field of `TrainingArguments` {fields['transformers']} is a key. With the same meaning: "
            + ", ".join(taken) + ".")  # fmt: skip
    return "\n".join([textwrap.fill(same, 140, break_on_hyphens=False) + "\n",
                      table("| not with every value | which |", limited),
                      table("| accepted, without an effect | why |", ignored)])  # fmt: skip


HEADS = {
    "masked_lm": "masked words",
    "sequence_classification": "sequences",
    "multiple_choice": "choices",
    "token_classification": "tokens",
    "question_answering": "answers",
}


def families(binary):
    """Every family of the binary, from its goldens and the results of scripts/bench/models.py."""
    known = json.loads((ROOT / "scripts/bench/results/models.json").read_text())
    properties = json.loads(output_of(binary, "schema"))["properties"]
    names = properties["model_type"]["anyOf"][0]["enum"]
    if missing := sorted(set(names) - set(known)):
        raise SystemExit(f"scripts/bench/models.py has not measured {', '.join(missing)}")
    goldens = {folder.name for folder in (ROOT / "tests/fixtures/model").iterdir() if folder.is_dir()}
    lines = ["| `model_type` | compared heads | updates | losses | gradient norms | measured |", "|---|---|---|---|---|---|"]
    for name in sorted(names):
        heads = [text for head, text in HEADS.items() if f"{name}-{head}" in goldens]
        if name in goldens:
            heads = ["next words"]
        row = known[name]
        lines.append(
            f"| {name} | {', '.join(heads)} | {row['updates']} | {row['loss']:.1e} | {row['grad_norm']:.1e} | {row['date']} |"
        )
    return "\n".join(lines) + "\n"


PAGES = {
    "models.md": {"families": families},
    "configuration.md": {
        "keys": lambda binary: output_of(binary, "table"),
        "exclusions": lambda binary: output_of(binary, "exclusions"),
    },
    "coming-from-transformers.md": {"fields": fields_of_transformers},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for name, tables in PAGES.items():
        page = ROOT / "docs" / name
        old = text = page.read_text(encoding="utf-8")
        for mark, make in tables.items():
            new = make(args.binary)
            pattern = re.compile(f"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
            text, count = pattern.subn(lambda m: m[1] + new + m[2], text)
            if count != 1:
                raise SystemExit(f"{page} has no table between {mark}:begin and {mark}:end")
        if args.check and text != old:
            raise SystemExit(f"{page} is out of date: scripts/docs --tables")
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
