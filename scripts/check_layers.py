#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks who includes whom. ARROWS is the table of src/README.md: an area may include what its
arrows reach, and base. Also that the choice of kernels by device stays in one source, and that the
classes in MEMBERS stay small. Prints each fault as file:line and exits 1."""

import pathlib
import re
import sys

ARROWS = {
    "base": [],
    "config": [],
    "tokenizer": [],
    "chat": [],
    "data": ["tokenizer", "chat"],
    "tensor": [],
    "kernels": ["tensor"],
    "params": ["kernels"],
    "nn": ["params"],
    "model": ["nn"],
    "optim": ["params", "config"],
    "distributed": ["tensor"],
    "checkpoint": ["tensor"],
    "report": ["data"],
    "task": ["model", "data", "tokenizer", "config", "report"],
    "plan": ["task", "optim", "distributed", "config"],
    "state": ["checkpoint", "optim", "distributed", "data", "model"],
    "export": ["model", "tokenizer", "checkpoint"],
    "train": ["export", "plan", "state", "report", "task", "checkpoint", "optim", "distributed", "config"],
    "cli": ["export", "train", "plan", "state", "report", "task", "config", "tokenizer", "data", "checkpoint"],
}
# The folders of src/train; each may include the private headers of those before it.
TRAIN_FOLDERS = ["setup", "folder", "session", "save", "loop"]
# Includes that are kept to some areas: (pattern, areas whose sources may, whether headers may).
KEPT = [
    (r"torch/(nn|torch\.h|optim|data)\b", set(), False),
    (r"(torch|ATen|c10)/", {a for a in ARROWS if a not in ("base", "config", "tokenizer", "chat", "data", "report")}, True),
    (r"(spdlog|fmt)/", {"base"}, False),
    (r"CLI/", {"cli"}, False),
    (r"yaml-cpp/", {"config"}, False),
    (r"sentencepiece", {"tokenizer"}, False),
    (r"nlohmann/json\.hpp", set(ARROWS), False),
    (r"finetune/config/training_args\.h", {"config", "task", "plan", "train", "cli"}, True),
]


def train_complaint(path, include):
    """Of an include of train/FOLDER/... in a source of src/train/FOLDER/."""
    own, other = (re.match(rf"{start}train/(\w+)/", text) for start, text in (("src/", path), ("", include)))
    if not own or not other or {own[1], other[1]} - set(TRAIN_FOLDERS):
        return None
    if TRAIN_FOLDERS.index(other[1]) > TRAIN_FOLDERS.index(own[1]):
        return f"train/{own[1]} may not include train/{other[1]}"
    return None


def reachable(area):
    areas = {area, "base"}
    for below in ARROWS[area]:
        areas |= reachable(below)
    return areas


# Which kernels compute is asked in one place, kernels_for(); areas that only compute ask nowhere.
DEVICE_QUESTION = re.compile(r"\bis_(cpu|cuda|privateuseone)\(\)|\bDeviceType::|\bdevice(_type)?\(\)\.type\(\)")
NO_DEVICE_QUESTIONS = {"kernels", "params", "optim"}
ASKS_FOR_THE_DEVICE = "src/kernels/kernels.cpp"


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


# Class, header: limits of its member functions and of its data members.
MEMBERS = {("Trainer", "src/train/loop/trainer.h"): (25, 15)}


def count_members(text, name):
    """Member functions and data members of a class, by its declarations at the outermost level."""
    body = re.search(rf"class {name}\b[^;{{]*{{\n(.*?)\n}};", text, re.DOTALL)[1]
    body = re.sub(r"//[^\n]*|\b(public|private|protected):", "", body)
    depth, flat = 0, ""
    for character in body:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            flat += ";" if character == "}" else character
    functions = data = 0
    for declaration in (part.strip() for part in flat.split(";")):
        if not declaration or re.match(r"(enum|struct|class|using|friend)\b", declaration):
            continue
        if re.search(r"\w\(", declaration.split(" = ")[0].replace("operator()", "call")):
            functions += 1
        else:
            data += 1
    return functions, data


def check_members(root):
    bad = 0
    for (name, header), most in MEMBERS.items():
        path = root / header
        if not path.exists():
            continue
        text = path.read_text()
        counted = count_members(text, name)
        if any(count > limit for count, limit in zip(counted, most)):
            line = text[: text.index(f"class {name}")].count("\n") + 1
            print(f"{header}:{line}: {name} has {counted[0]} member functions and {counted[1]} data members; at most {most[0]} and {most[1]}: move a part of it to another class")
            bad += 1
    return bad


def main(root):
    bad = check_members(root)
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
            name = str(path.relative_to(root))
            may_ask = area not in NO_DEVICE_QUESTIONS or name == ASKS_FOR_THE_DEVICE
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not may_ask and DEVICE_QUESTION.search(line):
                    print(f"{name}:{number}: only {ASKS_FOR_THE_DEVICE} asks for the device; use kernels_for()")
                    bad += 1
                include = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
                why = include and (
                    complaint(area, kind, include[1], name in WHOLE_JSON)
                    or train_complaint(name, include[1])
                )
                if why:
                    print(f"{name}:{number}: {why}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(root))
