#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds words that readers outside the project would have to translate.

Looks at comments and texts of sources and scripts, and at all of the pages. Prints each occurrence with the word to
use instead; any is an error.
"""

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
    r"(?<![\"{])\bpatience\b(?![_`])": "timeout",
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
# The same for identifiers in C++.
NAMES = {
    r"(?:\w+_)?(?<!in_)(?<!In)[Pp]laces?(?:_\w*)?": "position, location",
    r"\w*(?:[a-z]Places?|Places?[A-Z])\w*": "position, location",
    r"\w*set_aside\w*|\w+_aside\w*|Aside\w*": "quarantine",
    r"\w*(?:bring|brought|brings)_back\w*|BringBack\w*": "restore",
    r"\w*(?:may_go|goes|went)_on\w*": "continues",
    r"(?:\w+_)?told(?:_\w*)?": "reported",
    r"(?:\w+_)?behind(?:_\w*)?": "after",
    r"patience_seconds|with_patience|patiently|k[A-Z]\w*Patience": "timeout",
    r"(?:\w+_)?(?:mend|mended)(?:_\w*)?": "repair",
    r"(?:\w+_)?[Mm]eetings?(?:_\w*)?|Meeting[A-Z]\w*": "collective",
    r"\w*_anew": "again",
}
NAME_PATTERNS = {re.compile(rf"\b(?:{pattern})\b"): instead for pattern, instead in NAMES.items()}
IN_PLACE = re.compile(r"[iI]n_?[Pp]lace")
PATTERNS = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in WORDS.items()}

CPP = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')
RAW = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"')
SCRIPT = re.compile(r'#[^\n]*|"""(?:.|\n)*?"""|"(?:[^"\\\n]|\\.)*"')
SKIPPED = re.compile(r"^tests/fixtures/|^scripts/bench/results/|^scripts/check_words\.py$|^scripts/make_task_data\.py$|\.(?:svg|json|png|txt|bin)$|^LICENSE$")


def files():
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(git, check=True, text=True, stdout=subprocess.PIPE).stdout
    return [f for f in listed.splitlines() if not SKIPPED.search(f) and (ROOT / f).is_file()]


def texts(path):
    """Yields (line number, text) of comments and strings, or of all of a page."""
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


def names(path):
    """Yields (line number, identifiers) of the C++ sources of the program."""
    if not path.startswith(("src/", "include/")) or not path.endswith((".cpp", ".h", ".cu")):
        return
    content = (ROOT / path).read_text(encoding="utf-8", errors="replace")
    code = RAW.sub(lambda match: "\n" * match[0].count("\n"), content)
    code = CPP.sub("", code)
    yield from enumerate(code.splitlines(), 1)


def matches(lines, patterns):
    """Yields (line number, match, what to write instead, line); one search a pattern through all lines."""
    lines = list(lines)
    joined = "\n".join(text for _, text in lines)
    for pattern, instead in patterns.items():
        for match in pattern.finditer(joined):
            number, text = lines[joined.count("\n", 0, match.start())]
            yield number, match[0], instead, text


def main():
    found = []
    for path in files():
        for line, word, instead, text in matches(texts(path), PATTERNS):
            found.append((path, line, f"'{word}' -> {instead}: {text.strip()[:140]}"))
        for line, word, instead, _ in matches(names(path), NAME_PATTERNS):
            if not IN_PLACE.search(word):
                found.append((path, line, f"{word} -> {instead}"))
    for path, line, message in sorted(found):
        print(f"{path}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
