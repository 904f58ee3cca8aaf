#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds words that readers outside the project would have to translate.

Looks at comments and texts of sources and scripts, and at all of the pages. Each area has a limit, which only goes
down: more words than the limit is an error; fewer prints the new limit for LIMITS.

    check_words.py            checks
    check_words.py --list AREA...   prints each occurrence, with the word to use
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Pattern and what to write instead.
WORDS = {
    r"\banew\b": "again, rebuild",
    r"\bbehind (?:it|them|this|that|the|an?|us|max|which|its)\b": "after",
    r"\bbeside (?:it|them|this|that|the|an?|training|which|its)\b": "next to, concurrently with, in addition to",
    r"\b(?:that|it|what|which|where it|there) stands?\b": "is",
    r"\bstands? (?:in|at|there|for itself|alone|beside|behind)\b": "is in, is at",
    r"\b(?:lies|lie) (?:in|at|there|beside|behind|on|elsewhere|within|outside|below|above)\b": "is in, is at, is outside",
    r"\b(?:so many|as many as it)\b": "N, a number of",
    r"\bmeetings?\b": "collective",
    r"\b(?<!heart)beats? (?:for|in|of|stop)\b|\bpulses?\b": "heartbeat",
    r"\bpatience\b(?!_)": "timeout",
    r"\black of memory\b": "out of memory",
    r"\bcut (?:short|otherwise|off in|into|behind)\b": "truncated, split",
    r"\btwins?\b": "reference implementation",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\b(?:set|sets|put|take[sn]?) (?:it |them )?aside\b": "quarantine, rename",
    r"\b(?:goes|go|going|went|gone) on\b": "continue, resume",
    r"\bwho(?:ever)? (?:is|was|has|had|holds?|writes?|reads?|asks?|wants?|waits?|lives?|leaves?|left|comes?|came|builds?)\b": "name the actor",
    r"\bwhoever\b": "name the actor",
    r"\b(?:is|are|was|were|be|been) told\b": "reported, passed",
    r"\btells? (?:which|whether|how|what|that|apart|damage|it)\b": "report, distinguish",
    r"\bholders?\b(?! \{)": "owner",
    r"\b(?:taken|takes?|took) for\b": "treated as",
    r"\bof (?:its|their|his|our) own\b": "its own, dedicated",
    r"\bnumbers? that (?:is|are) none\b|\bis no number\b|\bof no number\b": "NaN or Inf, non-finite",
    r"\b(?:goes|go|going|went|gone) back\b": "roll back",
    r"\blearnt\b": "learned, a target",
    r"\bof which (?:nothing|every|all)\b": "rephrase",
}
PATTERNS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in WORDS.items()}

# Occurrences by area. A number goes down, never up; an area without a number has none.
LIMITS = {
    "cmake": 3,
    "docs": 1,
    "scripts": 4,
    "scripts/bench": 32,
    "src": 5,
    "src/cli": 8,
    "src/config": 5,
    "src/data": 37,
    "src/distributed": 12,
    "src/kernels": 7,
    "src/model": 7,
    "src/nn": 3,
    "src/optim": 3,
    "src/report": 1,
    "src/state": 2,
    "src/task": 6,
    "src/tensor": 4,
    "src/tokenizer": 18,
    "src/train": 6,
    "tests/accelerator": 1,
    "tests/base": 4,
    "tests/checkpoint": 3,
    "tests/config": 1,
    "tests/data": 16,
    "tests/distributed": 8,
    "tests/docs": 1,
    "tests/faults": 29,
    "tests/fuzz": 3,
    "tests/integration": 25,
    "tests/kernels": 3,
    "tests/model": 5,
    "tests/parity": 9,
    "tests/plan": 2,
    "tests/processes": 2,
    "tests/scripts": 2,
    "tests/state": 3,
    "tests/support": 1,
    "tests/task": 3,
    "tests/tensor": 3,
    "tests/tokenizer": 5,
    "tests/train": 6,
}

CPP = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')
SCRIPT = re.compile(r'#[^\n]*|"""(?:.|\n)*?"""|"(?:[^"\\\n]|\\.)*"')
SKIPPED = re.compile(r"^tests/fixtures/|^scripts/bench/results/|^scripts/check_words\.py$|\.(?:svg|json|png|txt|bin)$|^LICENSE$")


def files():
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(git, check=True, text=True, stdout=subprocess.PIPE).stdout
    return [f for f in listed.splitlines() if not SKIPPED.search(f) and (ROOT / f).is_file()]


def area_of(path):
    parts = path.split("/")
    if parts[0] == "include":
        return "/".join(["src", *parts[2:3]]) if len(parts) > 3 else "src"
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def texts(path):
    """Yields (line number, text) of what people read in a file."""
    content = (ROOT / path).read_text(encoding="utf-8", errors="replace")
    if path.endswith(".md"):
        pattern = None
    elif path.endswith((".cpp", ".h", ".def", ".c")):
        pattern = CPP
    else:
        pattern = SCRIPT
    if pattern is None:
        yield from enumerate(content.splitlines(), 1)
        return
    for match in pattern.finditer(content):
        first = content.count("\n", 0, match.start()) + 1
        yield from enumerate(match[0].splitlines(), first)


def main():
    listed = sys.argv[2:] if sys.argv[1:2] == ["--list"] else None
    counts = collections.Counter()
    for path in files():
        area = area_of(path)
        for line, text in texts(path):
            for pattern, instead in PATTERNS.items():
                for match in pattern.finditer(text):
                    counts[area] += 1
                    if listed is not None and (not listed or area in listed):
                        print(f"{path}:{line}: '{match[0]}' -> {instead}: {text.strip()[:140]}")
    if listed is not None:
        return 0
    failed = False
    for area in sorted(counts.keys() | LIMITS.keys()):
        count, limit = counts[area], LIMITS.get(area, 0)
        if count > limit:
            print(f"{area}: {count} words to translate, at most {limit} are allowed; see scripts/check_words.py --list {area}")
            failed = True
        elif count < limit:
            print(f'{area}: now {count}; lower its limit: "{area}": {count},')
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
