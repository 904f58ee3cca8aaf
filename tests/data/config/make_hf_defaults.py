# SPDX-License-Identifier: MIT
"""Writes hf_training_arguments.json: every field of transformers' TrainingArguments and its default.

Run with the transformers version that configurations are to follow:
    python make_hf_defaults.py > hf_training_arguments.json
"""

import dataclasses
import enum
import json
import sys

import transformers


def plain(value):
    return value.value if isinstance(value, enum.Enum) else value


defaults = {}
for field in dataclasses.fields(transformers.TrainingArguments):
    if not field.init:
        continue
    if field.default is not dataclasses.MISSING:
        defaults[field.name] = plain(field.default)
    else:
        defaults[field.name] = plain(field.default_factory())

json.dump({"transformers": transformers.__version__, "defaults": defaults}, sys.stdout, indent=1)
print()
