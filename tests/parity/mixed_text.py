# SPDX-License-Identifier: MIT
"""Text that splits tokenizers in many ways: all scripts, code, numbers, white space, emoji, marks, and
bytes that are not UTF-8 (as the U+FFFD that reading makes of them). Equal for equal seeds."""

import random

WORDS = (
    "the lamp Sea KEEPER o'clock I'm you'LL we've DON'T it's 'S 'ſ HTTPServer camelCase getURLs "
    "straße İstanbul ΑΣ Σίσυφος привет Мир שלום مرحبا नमस्ते ქართული 한국어 조선말 日本語の本 中文字符 カタカナ "
    "ǅ ﬁ ﬃ ẞ Å Å é ḍ̇ à́ ậ Việt ไทย ဗမာ ភាសា አማርኛ ᏣᎳᎩ 𐐷𐐨 𝔘𝔫𝔦 ꙗ x² ½ Ⅷ ٣٤٥ १२३ 三百 _a_b __init__ C++ "
    "e\u0301tude \u0301abc a\u0344b \u1100\u1161\u11a8 각 \u0f73 ŉ K ſt"
).split(" ")
CODE = (
    'if (x[i] != 0x1F) { return "a\\n"; }', "def f(self, *args):", "    for i in range(10):",
    "\t\tcase 'x':", "// --- TODO(me): fix ---", "<div class=\"a\">&nbsp;</div>", "{\"k\": [1, 2.5e-3]}",
    "SELECT * FROM t WHERE a>=1;", "#include <vector>", "a+=b<<3|~c^d&&e||f;", "path/to//file.txt",
    "https://a.b/c?d=e&f=%20#g", "x = λ y: y**2  # λ", "$HOME/.bashrc", "@decorator", "!!!???...", "——「」、。",
)  # fmt: skip
SPACES = (" ", " ", " ", " ", "  ", "   ", "        ", "\t", " \t", "\u00a0", "\u3000", "\u2028", "\u0085",
          "\u200b", "\u200d", "\x0b", "\x0c", "\x1c", "\r", " \r ", "\ufeff", "")  # fmt: skip
EMOJI = ("👍🏽", "👨\u200d👩\u200d👧", "🇯🇵🇩🇪", "❤️", "🏴\U000e0067\U000e0062\U000e007f", "😀😀", "#️⃣", "☃")
MARKS = ("!", "?", "...", "'", "''", "\"", ",", ";", "-", "--", "(", ")", "[", "]", "…", "—", "“", "”", "¿", "§", "€", "£9",
         "/", "//", "\\", "^", "`", "~", "@", "%", "&", "*", "+", "=", "<", ">", "|", "«", "»", "、", "。", "！")  # fmt: skip
RANGES = (
    (0x20, 0x7E), (0x20, 0x7E), (0x01, 0x1F), (0x7F, 0xA0), (0xA1, 0x24F), (0x250, 0x2AF), (0x2B0, 0x36F), (0x370, 0x52F),
    (0x530, 0x5FF), (0x600, 0x6FF), (0x700, 0x8FF), (0x900, 0xDFF), (0xE00, 0x109F), (0x10A0, 0x13FF), (0x1400, 0x1AFF),
    (0x1B00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x27BF), (0x2C00, 0x2DFF), (0x3000, 0x30FF),
    (0x3100, 0x33FF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFDFF),
    (0xFE00, 0xFE6F), (0xFF00, 0xFFEF), (0x10000, 0x10FFF), (0x11000, 0x11FFF), (0x16E40, 0x16FFF), (0x1D000, 0x1D7FF),
    (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x20000, 0x323AF), (0xE0100, 0xE01EF), (0x10FF00, 0x10FFFF),
)  # fmt: skip


def piece(rng):
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(WORDS)
    if kind < 0.55:
        low, high = rng.choice(RANGES)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 5)))
    if kind < 0.65:
        return rng.choice(CODE)
    if kind < 0.75:
        return str(rng.randrange(10 ** rng.randint(1, 12)))
    if kind < 0.87:
        return rng.choice(MARKS)
    if kind < 0.92:
        return rng.choice(EMOJI)
    if kind < 0.97:
        return "".join(rng.choice("aAzZéÉ") for _ in range(rng.choice([1, 2, 9, 40])))
    return bytes(rng.randrange(256) for _ in range(rng.randint(1, 6))).decode(errors="replace")


def mixed_text(size, seed, newlines=False):
    """Returns about `size` bytes. Without `newlines` it is one line: "\\n" becomes a space, and no "\\r"
    ends it."""
    rng = random.Random(seed)
    parts, length = [], 0
    while length < size:
        part = piece(rng)
        for _ in range(rng.choice([1, 1, 1, 1, 2])):
            part += rng.choice(SPACES)
        if rng.random() < 0.05:
            part += rng.choice(["\n", "\n\n", "\r\n", " \n ", "\n\n\n  "])
        parts.append(part)
        length += len(part.encode())
    text = "".join(parts)
    return text if newlines else text.replace("\n", " ").rstrip("\r")


def mixed_lines(size, seed):
    """Returns lines of one to a few hundred bytes, about `size` bytes in total."""
    rng = random.Random(seed)
    total, number = 0, 0
    while total < size:
        line = mixed_text(rng.choice([1, 10, 100, 400]), f"{seed} {number}")
        total += len(line.encode()) + 1
        number += 1
        yield line
