#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks who includes whom. ARROWS is the table of src/README.md: an area may include what its
arrows reach, and base. Prints each forbidden include as file:line and exits 1."""

import pathlib
import re
import sys

ARROWS = {
    "base": [],
    "config": [],
    "tokenizer": [],
    "data": ["tokenizer"],
    "tensor": [],
    "kernels": ["tensor"],
    "model": ["kernels"],
    "task": ["model", "data"],
    "optim": ["kernels", "config"],
    "distributed": ["tensor"],
    "checkpoint": ["tensor"],
    "report": ["data"],
    "plan": ["task", "optim", "distributed", "config"],
    "state": ["checkpoint", "optim", "distributed", "data", "model"],
    "train": ["predict", "plan", "state", "report", "task", "checkpoint", "optim", "distributed", "config"],
    "predict": ["task"],
    "cli": ["train", "plan", "state", "report", "predict", "config", "tokenizer", "data", "checkpoint"],
}
# Includes that are kept to some areas: (pattern, areas whose sources may, whether headers may).
KEPT = [
    (r"torch/(nn|torch\.h|optim|data)\b", {"model"}, False),
    (r"(torch|ATen|c10)/", {a for a in ARROWS if a not in ("base", "config", "tokenizer", "data", "report")}, True),
    (r"(spdlog|fmt)/", {"base"}, False),
    (r"CLI/", {"cli"}, False),
    (r"yaml-cpp/", {"config"}, False),
    (r"sentencepiece", {"tokenizer"}, False),
    (r"nlohmann/json\.hpp", set(ARROWS), False),
    (r"finetune/config/training_args\.h", {"config", "plan", "train", "cli"}, True),
]


def reachable(area):
    areas = {area, "base"}
    for below in ARROWS[area]:
        areas |= reachable(below)
    return areas


# Whose members are JSON documents.
WHOLE_JSON = {"include/finetune/state/run_state.h"}


def complaint(area, is_header, include, whole_json=False):
    for pattern, areas, in_headers in KEPT:
        if re.match(pattern, include):
            if area not in areas:
                return f"{include} is not for {area}"
            if is_header == "public" and not in_headers and not whole_json:
                return f"{include} belongs in a source"
    ours = re.match(r"finetune/(\w+)/|(\w+)/.*\.h$", include)
    other = ours and (ours[1] or ours[2])
    if ours and ours[1] and other not in ARROWS:
        return f"there is no area {other}"
    if other in ARROWS and other not in reachable(area):
        return f"{area} may not include {other}"
    if ours and ours[2] in ARROWS and other != area:
        return f"private header of {other}"
    return None


def main(root):
    bad = 0
    for top in ("include/finetune", "src"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu"):
                continue
            area = path.relative_to(root / top).parts[0]
            if area not in ARROWS:
                print(f"{path.relative_to(root)}:1: there is no area {area}")
                bad += 1
                continue
            kind = "public" if top != "src" else "private"
            for number, line in enumerate(path.read_text().splitlines(), 1):
                include = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
                why = include and complaint(area, kind, include[1], str(path.relative_to(root)) in WHOLE_JSON)
                if why:
                    print(f"{path.relative_to(root)}:{number}: {why}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(root))
