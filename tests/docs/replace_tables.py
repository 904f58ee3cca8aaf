#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replaces the tables of docs/configuration.md that the binary prints."""

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = {"keys": "table", "exclusions": "exclusions"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    args = parser.parse_args()
    page = ROOT / "docs" / "configuration.md"
    text = page.read_text(encoding="utf-8")
    for mark, command in TABLES.items():
        table = subprocess.run([args.binary, "config", command], check=True, text=True,
                               stdout=subprocess.PIPE).stdout  # fmt: skip
        pattern = re.compile(f"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
        text, count = pattern.subn(lambda m: m[1] + table + m[2], text)
        if count != 1:
            raise SystemExit(f"{page} has no table between {mark}:begin and {mark}:end")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
