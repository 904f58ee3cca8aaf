#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the excerpts of the documentation with the sources.

An excerpt is a fence of C++ whose first line names its file ("// src/nn/pass.cpp"). Its other lines must
be the file's, one after the other; a line "..." stands for any lines. Prints each excerpt that is not there,
as page:line, and exits 1.

    excerpts.py [PAGE...]     default: docs/**/*.md
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```cpp\n// ((?:src|include)/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def has(source, excerpt):
    """Whether the parts of an excerpt, between its lines of dots, follow each other in the source."""
    at = 0
    for part in re.split(r"^ *\.\.\.\n", excerpt, flags=re.MULTILINE):
        found = source.find(part, at)
        if found < 0 or (found > 0 and source[found - 1] != "\n"):
            return False
        at = found + len(part)
    return True


def main():
    pages = [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "docs").rglob("*.md"))
    count = bad = 0
    for page in pages:
        text = page.read_text()
        for match in FENCE.finditer(text):
            count += 1
            file = ROOT / match[1]
            if file.is_file() and has(file.read_text(), match[2]):
                continue
            line = text[: match.start()].count("\n") + 1
            print(f"{page}:{line}: {match[1]} does not have these lines")
            bad += 1
    if count == 0:
        print("no page has an excerpt")
    sys.exit(1 if bad or count == 0 else 0)


if __name__ == "__main__":
    main()
