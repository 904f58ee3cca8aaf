# SPDX-License-Identifier: MIT
"""Writes src/tokenizer/unicode_classes.inc: which code points the splitting pattern of GPT-2 takes
for letters, numbers and white space, asked of the tokenizers package code point by code point.

    python tests/data/tokenizer/make_unicode_classes.py
"""
import pathlib

import tokenizers

NAMES = {1: "L", 2: "N", 3: "S"}


def classify(split, code_point):
    if 0xD800 <= code_point < 0xE000:
        return 0
    char = chr(code_point)
    for value, neighbour in ((1, "a"), (2, "1"), (0, "!")):
        if len(split(neighbour + char)) == 1:
            return value
    return 3


def main():
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    ranges = []
    for code_point in range(0x110000):
        value = classify(split, code_point)
        if not value:
            continue
        if ranges and ranges[-1][1] == code_point - 1 and ranges[-1][2] == value:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point, value])
    root = pathlib.Path(__file__).resolve().parents[3]
    lines = [
        "// SPDX-License-Identifier: MIT",
        f"// Made by tests/data/tokenizer/make_unicode_classes.py with tokenizers {tokenizers.__version__}:",
        "// every code point that is a letter (L), a number (N) or white space (S).",
    ]
    line = ""
    for first, last, value in ranges:
        item = f"{{0x{first:X}, 0x{last:X}, {NAMES[value]}}},"
        if len(line) + len(item) + 1 > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item
    lines.append(line)
    (root / "src/tokenizer/unicode_classes.inc").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
