# SPDX-License-Identifier: MIT
"""Writes src/tokenizer/char_properties.inc: what tokenizers 0.23.3 thinks of every code point.

python tests/data/tokenizer/make_char_properties.py > src/tokenizer/char_properties.inc
"""

from tokenizers import normalizers, pre_tokenizers

WORD, CONTROL, PUNCTUATION, NONSPACING, MARK, NUMERIC = (1 << i for i in range(6))

split = pre_tokenizers.Whitespace().pre_tokenize_str
punctuation = pre_tokenizers.Punctuation().pre_tokenize_str
digits = pre_tokenizers.Digits().pre_tokenize_str
clean = normalizers.BertNormalizer(
    clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False
)
accents = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
)
marks = normalizers.StripAccents()


def properties(c):
    flags = 0
    parts = [word for word, _ in split("a" + c)]
    if parts == ["a" + c]:
        flags |= WORD
    if clean.normalize_str(c) == "":
        flags |= CONTROL
    if len(punctuation("a" + c)) == 2:
        flags |= PUNCTUATION
    if len(digits("a" + c)) == 2:
        flags |= NUMERIC
    if accents.normalize_str(c) == "":
        flags |= NONSPACING
    if marks.normalize_str(c) == "":
        flags |= MARK
    return flags


def main():
    ranges = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        flags = properties(chr(code))
        if not flags:
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == flags:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, flags])
    print("// SPDX-License-Identifier: MIT")
    print("// Made by tests/data/tokenizer/make_char_properties.py with tokenizers 0.23.3:")
    print("// every code point that has one of the properties of char_properties.h, as bits.")
    line = ""
    for first, last, flags in ranges:
        item = f"{{0x{first:X}, 0x{last:X}, {flags}}},"
        if len(line) + len(item) + 1 > 100:
            print(line)
            line = ""
        line += (" " if line else "") + item
    print(line)


if __name__ == "__main__":
    main()
