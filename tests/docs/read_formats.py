#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads token blocks and optimizer files with nothing but the tables of docs/file-formats.md.

Trains tiny models in a temporary folder, reads what they wrote by the offsets, types, names and sizes
on the page, and compares tokens with those of tokenizers, and tensors with those of safetensors and
torch. Exit code 77: a package is missing, which is a failure where CI=true.

    read_formats.py --binary build/finetune
"""

import argparse
import importlib.util
import json
import math
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("numpy", "xxhash", "tokenizers", "torch", "safetensors", "transformers")
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if MISSING:
    print(f"{sys.executable} lacks {', '.join(MISSING)}")
    sys.exit(1 if os.environ.get("CI", "").lower() in ("1", "true") else 77)

import numpy as np  # noqa: E402
import xxhash  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs/file-formats.md").read_text(encoding="utf-8")
PIECE = 262144
TYPES = {"F32": "<f4", "U8": "u1", "I8": "i1", "I64": "<i8", "u16": "<u2", "i32": "<i4", "u32": "<u4", "u8": "u1",
         "f32": "<f4", "2 i64": "<i8", "i64": "<i8", "bytes": "u1"}  # fmt: skip
NER = [(["The", "tower", "is", "white"], ["O", "B-X", "O", "O"]), (["A", "house"], ["O", "B-X"]),
       (["Jonas", "Hale"], ["B-X", "B-X"]), (["The", "lamp", "stands"], ["O", "O", "O"])]  # fmt: skip
TEXTS = [("The tower is white", "a"), ("A house", "b"), ("The lamp", "a"), ("Jonas Hale", "b")]


class Refused(Exception):
    pass


def need(condition, reason):
    if not condition:
        raise Refused(reason)


def section(title):
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section '{title}'"
    return found[1]


def tables(title):
    """The tables of a section: lists of rows, each a dictionary by the column's head."""
    found = []
    for lines in re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines.splitlines()]
        found.append([dict(zip(rows[0], row)) for row in rows[2:]])
    return found


HEADER, CHECKSUMS, COLUMNS = tables("A block")
STATES = tables("States of a parameter")[0]


def bare(cell):
    return cell.strip("`")


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def up(value, multiple):
    return -(-value // multiple) * multiple


class Block:
    """A token block, by the tables of "A block"."""

    def __init__(self, data):
        need(len(data) >= 448, "truncated")
        header = {}
        for row in HEADER:
            offset, size = int(row["offset"]), int(row["size"])
            raw = data[offset : offset + size]
            header[bare(row["name"])] = int.from_bytes(raw, "little") if row["type"] == "u64" else raw
        need(header["magic"] == b"TOKBLK01", "magic")
        need(header["file_bytes"] == len(data), "file_bytes")
        size = header["header_bytes"]
        need(size <= len(data), "header_bytes")
        pieces = -(-(len(data) - size) // PIECE)
        first = int(CHECKSUMS[0]["offset"])
        need(size == up(first + 8 * pieces + 8, 64), "header_bytes")
        self.header_sum = int.from_bytes(data[size - 8 : size], "little")
        need(self.header_sum == xxhash.xxh3_64_intdigest(data[: size - 8]), "header_sum")
        assert not any(data[first + 8 * pieces : size - 8]), "padding is zeros"
        for row in HEADER:
            if row["type"] == "u64" and int(row["offset"]) >= 56:
                need(header[bare(row["name"])] <= 1 << 40, "number")
        need(header["choices"] >= 1 and header["sequences"] % header["choices"] == 0, "choices")
        need(header["rows_begin"] <= header["rows_end"] and header["outputs"] <= 1 << 20, "number")
        sums = struct.unpack_from(f"<{pieces}Q", data, first)
        for piece, expected in enumerate(sums):
            begin = size + piece * PIECE
            need(xxhash.xxh3_64_intdigest(data[begin : begin + PIECE]) == expected, "piece")
        self.__dict__.update(header)
        self.key = header["key"].decode()
        self.columns = {}
        samples = self.sequences // self.choices
        counts = {"tokens": self.tokens, "sequences": self.sequences, "samples": samples,
                  "samples × outputs": samples * self.outputs}  # fmt: skip
        places = struct.unpack(f"<{3 * len(COLUMNS)}Q", header["columns"])
        used = np.zeros(len(data), bool)
        for row in COLUMNS:
            name, number = bare(row["name"]), int(row["column"])
            offset, width, count = places[3 * number : 3 * number + 3]
            need(str(width) in re.findall(r"\d+", row["bytes per value"]), f"width of {name}")
            expected = counts.get(row["values"], count)
            need(count == expected or (count == 0 and name not in ("ids", "ends")), f"values of {name}")
            need(offset % 64 == 0 and size <= offset and offset + width * count <= len(data), f"offset of {name}")
            used[offset : offset + width * count] = True
            self.columns[name] = self.values(data[offset : offset + width * count], row, width)
        assert not any(data[i] for i in np.flatnonzero(~used) if i >= size), "zeros fill the gaps"
        self.check()

    @staticmethod
    def values(raw, row, width):
        if bare(row["name"]) != "ids":
            return np.frombuffer(raw, TYPES[row["type"]])
        if width == 3:
            triples = np.frombuffer(raw, "u1").reshape(-1, 3).astype(np.int64)
            return triples @ np.array([1, 1 << 8, 1 << 16])
        return np.frombuffer(raw, TYPES["u16" if width == 2 else "i32"])

    def check(self):
        column = self.columns
        ends = np.concatenate([[0], column["ends"].astype(np.int64)])
        need((np.diff(ends) >= 0).all() and ends[-1] <= self.tokens, "ends")
        assert self.longest == (np.diff(ends).max() if len(ends) > 1 else 0)
        assert self.token_types == 1 + (column["types"].max() if len(column["types"]) else 0)
        for name, least in (("ids", 0), ("labels", -100), ("classes", -100), ("words", -1)):
            need((column[name] >= least).all(), name)
        need((column["masks"] <= 1).all(), "masks")


def fingerprint(blocks):
    """By "The fingerprint"."""
    hasher = xxhash.xxh3_128()

    def add(values, dtype, per_value=1):
        hasher.update(struct.pack("<Q", len(values) // per_value))
        hasher.update(values.astype(dtype).tobytes())

    def joined(name):
        return np.concatenate([block.columns[name] for block in blocks])

    starts = np.cumsum([0] + [block.tokens for block in blocks])
    ends = [block.columns["ends"].astype(np.int64) + start for block, start in zip(blocks, starts)]
    add(joined("ids"), "<i4")
    add(np.concatenate([[0], *ends]), "<i8")
    add(joined("labels"), "<i4")
    add(joined("masks"), "u1")
    types = joined("types") if max(block.token_types for block in blocks) > 1 else np.zeros(0)
    rest = [joined(name) for name in ("classes", "values", "answers")]
    choices, outputs = blocks[0].choices, max(block.outputs for block in blocks)
    if len(types) or choices > 1 or any(len(column) for column in rest):
        add(types, "u1")
        add(np.array([choices, outputs]), "<i8")
        add(rest[0], "<i4")
        add(rest[1], "<f4")
        add(rest[2], "<i8", 2)
    return hasher.hexdigest()


def read_cache(folder):
    """Reads the only cache in a folder: the blocks, checked against tokens.json."""
    (index,) = folder.glob("tokens/*/tokens.json")
    document = json.loads(index.read_text(encoding="utf-8"))
    content = document["content"]
    need(document["format"] == 1, "format")
    need(document["checksum"] == xxhash.xxh3_128_hexdigest(compact(content)), "checksum")
    key = index.parent.name
    need(key == xxhash.xxh3_128_hexdigest(compact(content["key"])), "key")
    blocks = []
    for number, expected in enumerate(content["blocks"]):
        data = (index.parent / f"block-{number:05}").read_bytes()
        block = Block(data)
        need(block.key == key and block.number == number, "a block of another cache")
        need(block.rows_begin == (blocks[-1].rows_end if blocks else 0), "rows_begin")
        need(len(data) == expected["bytes"] and block.header_sum == expected["checksum"], "not the index's block")
        blocks.append(block)
    for entry in content["files"]:
        assert entry["hash"] == xxhash.xxh3_128_hexdigest(Path(entry["identity"]["path"]).read_bytes())
    totals = content["totals"]
    assert totals["sequences"] == sum(block.sequences for block in blocks)
    assert totals["tokens"] == sum(block.tokens for block in blocks)
    assert totals["fingerprint"] == fingerprint(blocks)
    refuses_damage(data)
    return blocks


def refuses_damage(data):
    """A changed bit anywhere in a block is refused."""
    size = int.from_bytes(data[8:16], "little")
    for at in (0, 8, 16, 24, 88, 128, size - 8, size, len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        try:
            Block(bytes(damaged))
        except Refused:
            continue
        raise AssertionError(f"damage at byte {at} was not noticed")


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__")
    tensors, end = {}, 0
    for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, behind = info["data_offsets"]
        assert begin == end, "no gaps"
        values = np.frombuffer(data[8 + size + begin : 8 + size + behind], TYPES[info["dtype"]])
        assert begin % values.itemsize == 0
        tensors[name], end = values.reshape(info["shape"]), behind
    assert end == len(data) - 8 - size
    return metadata, tensors


class TensorsOfZip(pickle.Unpickler):
    """Reads data.pkl; a tensor is the entry archive/data/K."""

    STORAGES = {"FloatStorage": "<f4", "ByteStorage": "u1", "CharStorage": "i1", "LongStorage": "<i8"}

    def __init__(self, archive):
        super().__init__(archive.open("archive/data.pkl"))
        self.archive = archive

    def find_class(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda values, offset, shape, strides, *_: values.reshape(shape)
        if module == "torch" and name in self.STORAGES:
            return self.STORAGES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise Refused(f"{module}.{name}")

    def persistent_load(self, identity):
        kind, dtype, key, device, count = identity
        assert (kind, device) == ("storage", "cpu")
        values = np.frombuffer(self.archive.read(f"archive/data/{key}"), dtype)
        assert len(values) == count
        return values


def read_torch(path):
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        storages = [f"archive/data/{k}" for k in range(len(names) - 3)]
        assert names == ["archive/data.pkl", "archive/byteorder", *storages, "archive/version"]
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            assert info.compress_type == zipfile.ZIP_STORED
            assert (info.header_offset + 30 + name + extra) % 64 == 0
        assert archive.read("archive/byteorder") == b"little" and archive.read("archive/version") == b"3\n"
        assert data[-42:-38] == b"PK\x06\x07", "a zip64 locator"
        return TensorsOfZip(archive).load()


def check_states(optimizer, shape, states, name):
    """A parameter's tensors have the names, types and shapes of "States of a parameter"."""
    count = math.prod(shape)
    shapes = {"shape": list(shape), "256": [256], "none": [], "rows": shape[:1], "columns": shape[1:],
              "⌈n / 256⌉": [-(-count // 256)], "⌈n / 128⌉": [-(-count // 128)]}  # fmt: skip
    rows = [row for row in STATES if row["optimizer"].replace("`", "") in optimizer]
    expected = {bare(row["state"]): (np.dtype(TYPES[row["type"]]), shapes[row["shape"]]) for row in rows}
    found = {state: (values.dtype, list(values.shape)) for state, values in states.items() if state != "step"}
    assert rows and found == expected, f"{name}: {found}, on the page {expected}"


def check_torch(folder, optimizer, by_name):
    """Reads optimizer.pt and compares it with torch.load; returns the types of state1 if there are any."""
    import torch

    read = read_torch(folder / "optimizer.pt")
    loaded = torch.load(folder / "optimizer.pt", weights_only=True)
    assert loaded["param_groups"] == read["param_groups"]
    assert loaded["state"].keys() == read["state"].keys()
    decayed = [name for name in by_name if not re.search("bias|LayerNorm|layer_norm", name)]
    plain = [name for name in by_name if name not in decayed]
    groups = read["param_groups"]
    assert [len(group["params"]) for group in groups] == [len(decayed), len(plain)]
    widths = set()
    for name, index in zip(decayed + plain, groups[0]["params"] + groups[1]["params"]):
        states = read["state"][index]
        for state, values in loaded["state"][index].items():
            assert np.array_equal(np.asarray(values), states[state])
        assert int(states["step"]) == 4
        assert isinstance(states["step"], np.ndarray) == (optimizer == "adamw")
        kinds = [optimizer, f"{optimizer}, {'matrix' if len(by_name[name]) > 1 else 'vector'}"]
        if "state1" in states and states["state1"].dtype == np.float32:
            kinds = [f"{optimizer}, 32 bits"]
        check_states(kinds, by_name[name], states, name)
        widths |= {states["state1"].dtype.name} if "state1" in states else set()
    return widths


def check_safetensors(folder, by_name, optimizer):
    from safetensors.numpy import load_file

    metadata, tensors = read_safetensors(folder / "optimizer.safetensors")
    for name, values in load_file(folder / "optimizer.safetensors").items():
        assert np.array_equal(values, tensors[name])
    assert metadata["format"] == "pt" and metadata["format_version"] == "1"
    assert metadata.get("optimizer") == optimizer
    for name, shape in by_name.items():
        states = {key.rpartition(".")[2]: tensors.pop(key) for key in list(tensors) if key.rpartition(".")[0] == name}
        if optimizer is None:
            assert list(states) == ["correction"] and states["correction"].dtype == np.int8
            assert states["correction"].min() >= -127 and list(states["correction"].shape) == list(shape)
            continue
        assert states["step"].dtype == np.int64 and states["step"].shape == () and states["step"] == 4
        check_states([optimizer], shape, states, name)
        assert states["exp_avg_q"].min() >= -127
        scale = np.repeat(states["exp_avg_scale"], 128)[: states["exp_avg_q"].size]
        q = states["exp_avg_q"].ravel().astype(np.float64)
        largest = np.abs(q / (254 - np.abs(q)) * scale)
        assert largest.max() == states["exp_avg_scale"].max(), "the largest magnitude is a code of 127"
    assert not tensors, f"unknown tensors {list(tensors)}"


def check_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    checksum = manifest.pop("checksum")
    assert checksum == xxhash.xxh3_128_hexdigest(compact(manifest))
    for name, record in manifest["files"].items():
        data = (folder / name).read_bytes()
        step = manifest["block_bytes"]
        blocks = [xxhash.xxh3_128_hexdigest(data[at : at + step]) for at in range(0, len(data), step)]
        assert record == {"bytes": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data), "blocks": blocks}


def check_tokens(work):
    """Tokens of the example: those of every line, joined and divided into sequences of 32."""
    from tokenizers import Tokenizer

    (block,) = read_cache(work / "cache")
    tokenizer = Tokenizer.from_file(str(work / "tokenizers/lighthouse/tokenizer.json"))
    lines = (work / "data/lighthouse.txt").read_text(encoding="utf-8").splitlines()
    ids = [number for line in lines for number in tokenizer.encode(line).ids]
    count = len(ids) // 32 * 32
    assert block.tokens == count and block.columns["ids"].tolist() == ids[:count]
    assert block.columns["ends"].tolist() == list(range(32, count + 1, 32))
    assert block.rows_end == len(lines)

    (block,) = read_cache(work / "cache-long")  # more than one piece
    assert block.file_bytes - block.header_bytes > PIECE and block.rows_end == 12 * len(lines)

    (block,) = read_cache(work / "cache-ner")
    begins = [0, *block.columns["ends"]]
    for i, (words, labels) in enumerate(NER):
        part = slice(begins[i], begins[i + 1])
        assert block.columns["word_counts"][i] == len(words)
        of_words = block.columns["words"][part]
        assert of_words.min() == -1 and of_words.max() == len(words) - 1
        marked = {(word, label) for word, label in zip(of_words, block.columns["labels"][part]) if label != -100}
        names = sorted({label for _, labels_of in NER for label in labels_of})
        assert marked == {(j, names.index(label)) for j, label in enumerate(labels)}

    (block,) = read_cache(work / "cache-class")
    begins = [0, *block.columns["ends"]]
    for i, (text, label) in enumerate(TEXTS):
        assert block.columns["ids"][begins[i] : begins[i + 1]].tolist() == tokenizer.encode(text).ids
        assert block.columns["classes"][i] == "ab".index(label)


def shapes_of_model(folder):
    """Names and shapes in the order of transformers' named_parameters()."""
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    binary = parser.parse_args().binary.resolve()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def finetune(*words):
            env = dict(os.environ, OMP_NUM_THREADS="1")
            done = subprocess.run([binary, *words], cwd=work, env=env, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)  # fmt: skip
            if done.returncode != 0:
                raise SystemExit(f"finetune {' '.join(words)}: exit code {done.returncode}\n{done.stdout}")

        def train(output, *words):
            finetune("train", "smoke.yaml", "--output_dir", output, "--max_steps", "4", "--save_steps", "4",
                     "--eval_strategy", "no", "--cache_dir", "cache", *words)  # fmt: skip
            return work / output / "checkpoint-4"

        finetune("config", "example", "smoke")
        rows = [json.dumps({"tokens": words, "ner_tags": labels}) for words, labels in NER]
        (work / "ner.json").write_text("\n".join(rows) + "\n", encoding="utf-8")
        rows = [json.dumps({"text": text, "label": label}) for text, label in TEXTS]
        (work / "class.json").write_text("\n".join(rows) + "\n", encoding="utf-8")

        text = (work / "data/lighthouse.txt").read_text(encoding="utf-8")
        (work / "long.txt").write_text(12 * text, encoding="utf-8")
        small = ("--optim_args", "min_8bit_size=1024")
        adamw = train("adamw", "--optim", "adamw_torch", "--param_dtype", "bfloat16+int8")
        wide = train("wide", "--optim", "adamw_8bit", *small)
        companded = train("companded", "--optim", "adamw_companded_8bit")
        adafactor = train("adafactor", "--optim", "adafactor")
        momentum = train("sgd", "--optim", "sgd", "--optim_args", "momentum=0.9")
        train("long", "--train_file", "long.txt", "--save_strategy", "no", "--cache_dir", "cache-long")
        for name, task in (("ner", "token_classification"), ("class", "sequence_classification")):
            train(name, "--task", task, "--train_file", f"{name}.json", "--validation_file", "null",
                  "--save_strategy", "no", "--cache_dir", f"cache-{name}")  # fmt: skip

        check_tokens(work)
        by_name = shapes_of_model(adamw)
        check_torch(adamw, "adamw", by_name)
        check_safetensors(adamw, by_name, None)
        assert check_torch(wide, "adamw_8bit", by_name) == {"uint8", "float32"}
        check_safetensors(companded, by_name, "adamw_companded_8bit")
        check_torch(adafactor, "adafactor", by_name)
        check_torch(momentum, "sgd", by_name)
        for checkpoint in (adamw, wide, companded, adafactor, momentum):
            check_manifest(checkpoint)
    print("token blocks and optimizer files are as docs/file-formats.md says")


if __name__ == "__main__":
    main()
