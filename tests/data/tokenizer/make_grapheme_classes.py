# SPDX-License-Identifier: MIT
"""Writes src/tokenizer/grapheme_classes.inc: where the Precompiled normaliser of the tokenizers
package cuts a text into grapheme clusters, asked of it code point by code point.

    python tests/data/tokenizer/make_grapheme_classes.py

A rule takes the place of a whole cluster of less than six bytes that starts with what it replaces;
in longer clusters it replaces its own characters only. So what is left of a mark behind a character
with a rule tells whether there is a boundary in front of that character.
"""

import pathlib
import struct

import tokenizers
from tokenizers.normalizers import Precompiled

MARK, MARK2, ZWJ, EMOJI, KA, VIRAMA = "\u0301", "\u0302", "\u200d", "\u00a9", "\u0915", "\u094d"
L, V, T = "\u1100", "\u1161", "\u11a8"


def charsmap(rules):
    """The bytes of a precompiled_charsmap: a double array with a block for each node."""
    nodes = {b"": {}}
    for key in rules:
        for i in range(len(key)):
            nodes.setdefault(key[:i], {})[key[i]] = key[: i + 1]
            nodes.setdefault(key[: i + 1], {})
    blocks = {prefix: 256 * (i + 1) for i, prefix in enumerate(nodes)}
    units = [1 << 31] * (256 * (len(nodes) + 1))
    texts = b""
    places = {b"": 0}
    for prefix, children in nodes.items():
        for label, child in children.items():
            places[child] = blocks[prefix] ^ label
    for prefix in nodes:
        place, block = places[prefix], blocks[prefix]
        label = prefix[-1] if prefix else 0
        units[place] = (place ^ block) << 10 | (prefix in rules) << 8 | label
        if prefix in rules:
            units[block] = 1 << 31 | len(texts)
            texts += rules[prefix] + b"\0"
    trie = b"".join(struct.pack("<I", x) for x in units)
    return struct.pack("<I", len(trie)) + trie + texts


def asks(char):
    """True for `text` that ends with `char` if no boundary lies in front of it."""
    normalizer = Precompiled(charsmap({char.encode(): b"R"}))
    marks = MARK + MARK2 if len(char.encode()) == 1 else MARK
    return lambda text: normalizer.normalize_str(text + marks).endswith("R" + marks)


joins_a, joins_emoji, joins_ka, joins_l, joins_v, joins_t = map(asks, ("a", EMOJI, KA, L, V, T))
after_a = Precompiled(charsmap({b"a": b"R"}))
mark_rule = Precompiled(charsmap({MARK.encode(): b"M"}))


def grapheme_class(c):
    code = ord(c)
    if c in "\r\n" or c == ZWJ:
        return {"\r": "kCr", "\n": "kLf", ZWJ: "kZwj"}[c]
    if after_a.normalize_str("a" + c) == "R":
        return "kExtend" if joins_emoji(EMOJI + c + ZWJ + EMOJI) else "kSpacingMark"
    if not mark_rule.normalize_str(c + MARK + MARK2).endswith(MARK2):
        return "kControl"
    if joins_a(c + "a"):
        return "kPrepend"
    hangul = joins_l(c + L), joins_v(c + V), joins_t(c + T)
    if any(hangul):
        if 0xAC00 <= code <= 0xD7A3:
            assert hangul == (False, (code - 0xAC00) % 28 == 0, True)
            return None
        return {(1, 1, 0): "kL", (0, 1, 1): "kV", (0, 0, 1): "kT"}[hangul]
    if joins_emoji(c + ZWJ + EMOJI):
        return "kPictographic"
    if joins_ka(c + VIRAMA + KA):
        return "kConsonant"
    return "kOther"


def indic(c):
    if joins_ka(KA + c + KA):
        return " | kLinker"
    return " | kIndicExtend" if joins_ka(KA + VIRAMA + c + KA) else ""


def main():
    ranges = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        value = grapheme_class(chr(code))
        if value is None:
            continue
        if value != "kPrepend":
            value += indic(chr(code))
        if value == "kOther":
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == value:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, value])
    root = pathlib.Path(__file__).resolve().parents[3]
    lines = [
        "// SPDX-License-Identifier: MIT",
        f"// Made by tests/data/tokenizer/make_grapheme_classes.py with tokenizers {tokenizers.__version__}:",
        "// every code point that is more than itself in a grapheme cluster, but Hangul syllables.",
    ]
    line = ""
    for first, last, value in ranges:
        item = f"{{0x{first:X}, 0x{last:X}, {value}}},"
        if len(line) + len(item) + 1 > 100:
            lines.append(line)
            line = ""
        line += (" " if line else "") + item
    lines.append(line)
    (root / "src/tokenizer/grapheme_classes.inc").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
