#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks who includes whom. ARROWS is the table of src/README.md: an area may include what its
arrows reach, and base; a folder of an area those before it. Also that the choice of kernels by device
stays in one source, that the classes in MEMBERS stay small, that the code does not grow unseen, and that
the files exist which the pages in src name.
Prints each fault as file:line and exits 1."""

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
    "distributed": ["params"],
    "checkpoint": ["tensor"],
    "report": ["data"],
    "task": ["model", "data", "tokenizer", "config", "report"],
    "plan": ["task", "optim", "distributed", "config"],
    "state": ["checkpoint", "optim", "distributed", "data", "model"],
    "export": ["model", "tokenizer", "checkpoint"],
    "runs": ["report", "checkpoint", "config", "data", "model"],
    "train": ["export", "plan", "state", "report", "task", "checkpoint", "optim", "distributed", "config"],
    "cli": ["export", "train", "runs", "plan", "state", "report", "task", "config", "tokenizer", "data", "checkpoint"],
}
# The folders of areas that have some; each may include those before it. A public header belongs to the
# folder that has its source.
FOLDERS = {
    "config": ["keys", "reading", "rules", "writing"],
    "tokenizer": ["unicode", "regex", "steps", "models", "pipeline", "sentencepiece", "training"],
    "data": ["readers", "cache", "columns", "streaming", "samples", "loading", "pretraining"],
    "kernels": ["interface", "plain", "cpu", "cuda", "meta"],
    "task": ["loss", "metrics", "predict", "generate", "setup"],
    "train": ["setup", "folder", "session", "save", "loop"],
    "cli": ["process", "commands"],
}
# Areas whose public headers are of the first folder.
INTERFACES = {"kernels"}
# Areas whose other folders may include those of FOLDERS, and none of them another.
SIBLINGS = {"task"}
# Includes that are kept to some areas: (pattern, areas whose sources may, whether headers may).
KEPT = [
    (r"torch/(nn|torch\.h|optim|data)\b", set(), False),
    (r"(torch|ATen|c10)/", {a for a in ARROWS if a not in ("base", "config", "tokenizer", "chat", "data", "report")}, True),
    (r"(spdlog|fmt)/", {"base"}, False),
    (r"CLI/", {"cli"}, False),
    (r"yaml-cpp/", {"config", "data"}, False),  # data: the card of a data set
    (r"sentencepiece", {"tokenizer"}, False),
    (r"nlohmann/json\.hpp", set(ARROWS), False),
    (r"finetune/config/training_args\.h", {"config", "plan", "train", "cli"}, True),
]


def folders_of(root):
    """(area, name of a file without its ending): its folder."""
    found = {}
    for area, folders in FOLDERS.items():
        for folder in folders:
            for path in (root / "src" / area / folder).glob("*.*"):
                found.setdefault((area, path.stem), folder)
    return found


def folder_complaint(area, path, include, folders):
    """Of an include in a folder of an area that belongs to a later one."""
    ours = re.match(rf"(?:finetune/)?{area}/(?:(\w+)/)?(\w+)\.\w+$", include)
    order = FOLDERS.get(area)
    if not ours or not order:
        return None
    if area in INTERFACES and include.startswith("finetune/"):
        return None
    own = path.parent.name if path.parent.name in order else folders.get((area, path.stem))
    other = ours[1] if ours[1] in order else folders.get((area, ours[2]))
    if path.parts[0] == "src" and path.parent.name == area:  # above the folders
        return None
    if own and other and order.index(other) > order.index(own):
        return f"{area}/{own} may not include {area}/{other}"
    if area in SIBLINGS and ours[1] and ours[1] not in order and ours[1] != path.parent.name:
        return f"{area}/{path.parent.name} may not include {area}/{ours[1]}: move what they share to a folder of all"
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
WHOLE_JSON = {"include/finetune/state/run_state.h", "include/finetune/runs/run_folder.h"}


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


# Sources and headers of src/ and include/, and their lines, at most. A feature that needs more raises them in
# its own commit, with the reason; what becomes shorter lowers them.
# 2026-11: TPU (tensor/tpu, train/accelerator); dry runs of an update (kernels/meta, plan/dry_update).
# Several data sets in turn (data/loading/sets_in_turn), hard negatives and search (task/embedding).
# Dense layers of embedding models (model/embedding_files), drawn negatives (data/drawn_negatives).
# Families: gemma3n, gemma4 (gemma_n, per_layer_input), qwen3_moe, olmoe, granitemoe, gpt_oss (nn/experts, nn/stacked_linear, attention sinks, MXFP4), distilbert, electra, mpnet, eurobert, roformer, granite, seed_oss, glm4, helium, ernie4_5, starcoder2, arcee, apertus (kernels/xielu), gpt_neox, phi, stablelm, exaone4, hunyuan_v1_dense, nanochat,
# nomic_bert, lfm2, qwen3_5 (a source of
# model/ each). Decisions (data/decision_*, data/laya_prompt, task/decision, model/laya; kernels/uint8_values). Gated delta nets and short convolutions (kernels/delta_rule, nn/recurrent). Families of GGUF (export/gguf_family).
MOST_FILES, MOST_LINES = 1400, 158750  # with preferences (task/preference, data/pair_dataset, answer_rows, train/loop/reference) and own products (cpu/token_product, loops/tile_product)


def check_weight(root):
    if not (root / "src" / "CMakeLists.txt").exists():
        return 0
    files = [path for top in ("src", "include") for path in (root / top).rglob("*") if path.suffix in (".h", ".cpp", ".cu")]
    lines = sum(path.read_text().count("\n") for path in files)
    if len(files) <= MOST_FILES and lines <= MOST_LINES:
        return 0
    print(f"src and include have {len(files)} files and {lines} lines, more than {MOST_FILES} and {MOST_LINES}: merge or remove something, or raise MOST_FILES and MOST_LINES in scripts/check_layers.py with the reason")
    return 1


def check_threads(root):
    """at::parallel_for runs on one thread where it is compiled without OpenMP."""
    lists = root / "src" / "CMakeLists.txt"
    if not lists.exists():
        return 0
    areas = {call.split()[0] for call in lists.read_text().split("finetune_area(")[1:] if "TorchWheel::openmp" in call.split(")")[0]}
    bad = 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp") or "at::parallel_for" not in path.read_text():
            continue
        area = path.relative_to(root / "src").parts[0]
        if area not in areas:
            print(f"{path.relative_to(root)}: at::parallel_for, but {area} is compiled without TorchWheel::openmp (src/CMakeLists.txt)")
            bad += 1
    return bad


def check_pages(root):
    """Headers and sources that the pages in src name exist: below src or include/finetune, below the page's
    area, or below the area or folder that begins the row of a table."""
    bad = 0
    for page in sorted((root / "src").rglob("README.md")):
        area = page.parent.relative_to(root / "src")
        for number, line in enumerate(page.read_text().splitlines(), 1):
            row = re.match(r"\| \[?`([\w/]+)/`", line)
            folders = ["", area, area / row[1] if row else area]
            for name in re.findall(r"`([\w/.-]+\.(?:h|cpp|cu|def))`", line):
                places = [top / folder / name for top in (root / "src", root / "include/finetune") for folder in folders]
                if name.startswith("ATen/") or any(place.exists() for place in [root / name, *places]):
                    continue
                print(f"{page.relative_to(root)}:{number}: there is no {name}")
                bad += 1
    return bad


def main(root):
    bad = check_members(root) + check_weight(root) + check_threads(root) + check_pages(root)
    folders = folders_of(root)
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
                    or folder_complaint(area, path.relative_to(root), include[1], folders)
                )
                if why:
                    print(f"{name}:{number}: {why}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(root))
