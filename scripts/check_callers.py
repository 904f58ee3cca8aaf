#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Lists functions that a header of src or include declares and that nothing there calls; exit 1 if
one is not in UNCALLED, or one of those is called. Names are compared, not overloads, so a function
that shares its name with another is not found.

    check_callers.py [FOLDER]   FOLDER: has src and include; default: this checkout
"""

import collections
import pathlib
import re
import sys

# Functions that only tests call, and why they are there all the same.
UNCALLED = {
    # What a program that is built on the library registers (docs/extending.md).
    "add_optimizer": "extension",
    "add_schedule": "extension",
    "add_task": "extension",
    # Another way to the same result, which tests compare.
    "count_block_sparse_passes": "counts passes of the fused kernel",
    "dropout_mask_reference": "the mask, number by number",
    "program_of_all": "all device functions in one program, for compilers of other architectures",
    "update_companded_portable": "named by a macro",
    "update_dynamic_portable": "named by a macro",
    "update_wide_portable": "named by a macro",
    "dropout_factors_avx2": "named by a macro",
    "philox_words_avx2": "named by a macro",
    # What a test reads or sets.
    "allocation_fault_is_ahead": "planted faults",
    "as_bool": "values of a torch file",
    "as_string": "values of a torch file",
    "end_of_turn": "what was found in a template",
    "filter_names": "every filter has limits",
    "is_bool": "values of a torch file",
    "method_names": "every method has limits",
    "moments_of": "states of an optimizer",
    "normalize_answer": "SQuAD's own normalisation, word by word",
    "optimizer_kinds": "every optimizer",
    "set_own_program": "the program of a warm session",
    "test_names": "every test has limits",
    "to_vector": "ids of a sample",
}
COMMENTS_AND_TEXTS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S
)
DECLARATION = re.compile(
    r"^[ \t]*(?:\[\[nodiscard\]\]\s*|virtual\s+|static\s+|inline\s+|constexpr\s+|friend\s+)*"
    r"(?!(?:return|else|throw|new|delete|case|using|requires)\b|co_)[A-Za-z_][\w:<>,&*\s]*?[&*>\w]\s+[&*]*"
    r"(?:\w+::)*([a-z_]\w*)\(",
    re.M,
)
NO_FUNCTION = {"alignas", "requires"}
# Compiled at run time, by names that are put together.
SKIPPED = "src/kernels/cuda/device/"


def uncalled(root):
    """Returns name: "file:line" of what is only declared and defined."""
    words, declared, places = collections.Counter(), collections.Counter(), {}
    paths = [path for folder in ("include", "src") for path in sorted((root / folder).rglob("*"))]
    for path in paths:
        name = str(path.relative_to(root))
        if path.suffix not in (".h", ".cpp") or name.startswith(SKIPPED):
            continue
        text = COMMENTS_AND_TEXTS.sub(" ", path.read_text())
        words.update(re.findall(r"\b[a-z_]\w*\b", text))
        for found in DECLARATION.finditer(text):
            declared[found[1]] += 1
            if path.suffix == ".h":
                places.setdefault(found[1], name)
    return {
        name: place
        for name, place in places.items()
        if words[name] <= declared[name] and name not in NO_FUNCTION
    }


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = uncalled(root)
    faults = [
        f"{place}: nothing in src calls {name}(): remove it, or name it in UNCALLED of scripts/check_callers.py"
        for name, place in sorted(found.items())
        if name not in UNCALLED
    ]
    if len(sys.argv) < 2:
        faults += [
            f"scripts/check_callers.py: {name} has a caller or is gone: remove it from UNCALLED"
            for name in UNCALLED
            if name not in found
        ]
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
