# SPDX-License-Identifier: MIT
"""R20: of damaged safetensors files finetune accepts only what the reference accepts, and both read the
same tensors."""

import json
import os
import random
import struct
import subprocess
import time
import unittest
from hashlib import blake2b
from pathlib import Path

import safetensors
from support import ROOT

CASES = int(100_000 * float(os.environ.get("FINETUNE_FAULTS_SCALE", 1)))
SEED = int(os.environ.get("FINETUNE_FAULTS_SEED", 1))
WORDS = ['"F32"', '"I64"', '"BOOL"', "[0,4]", "[4,8]", "[1]", "[]", "[2,2]", '"a"', '"b"', "{", "}"]
WORDS += [
    "-1",
    "18446744073709551615",
    "4294967296",
    "1e3",
    "null",
    '"__metadata__"',
    " ",
    "\\u0000",
]


def seeds():
    """Returns headers with their data."""
    tensor = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    other = {"dtype": "U8", "shape": [2, 2], "data_offsets": [4, 8]}
    empty = {"dtype": "BF16", "shape": [0, 3], "data_offsets": [0, 0]}
    yield json.dumps({"a": tensor}), b"abcd"
    yield json.dumps({"a": tensor, "b": other}), b"abcdefgh"
    yield json.dumps({"__metadata__": {"format": "pt"}, "b": other, "a": tensor}), b"abcdefgh"
    yield json.dumps({"e": empty}), b""
    yield json.dumps({}), b""
    for path in sorted((ROOT / "tests" / "fixtures" / "fuzz" / "safetensors").glob("*.safetensors")):
        data = path.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        if length < len(data):
            yield data[8 : 8 + length].decode("latin-1"), data[8 + length :]


def mutate(chance, data):
    data = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data.insert(at, chance.randrange(256))
        elif kind == 2:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            data[at:at] = chance.choice(WORDS).encode()
        elif kind == 4:
            data[at:at] = data[at : at + chance.randrange(1, 40)]
        elif kind == 5:
            del data[at:]
    return bytes(data)


def damaged(chance, header, data):
    """Returns a file with damage in the header, in the data, or anywhere, including the length."""
    header = header.encode("latin-1")
    kind = chance.randrange(10)
    if kind < 7:
        header = mutate(chance, header)
    elif kind < 9:
        data = mutate(chance, data)
    file = struct.pack("<Q", len(header)) + header + data
    return mutate(chance, file) if kind == 9 else file


def reference(data):
    try:
        tensors = safetensors.deserialize(data)
    except (safetensors.SafetensorError, OverflowError, ValueError):
        return None
    return {name: (t["dtype"], tuple(t["shape"]), digest(t["data"])) for name, t in tensors}


def digest(data):
    return blake2b(bytes(data), digest_size=8).hexdigest()


def verdicts(files):
    program = Path(os.environ["FINETUNE_BINARY"]).parent / "finetune_safetensors_verdicts"
    stream = b"".join(struct.pack("<I", len(f)) + f for f in files)
    done = subprocess.run([program], input=stream, capture_output=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines()]


class SafetensorsTest(unittest.TestCase):
    def test_what_is_accepted_means_the_same_to_the_reference(self):
        chance = random.Random(SEED)
        pairs = list(seeds())
        started, accepted, refused = time.monotonic(), 0, 0
        for begin in range(0, CASES, 10_000):
            files = [
                damaged(chance, *chance.choice(pairs)) for _ in range(min(10_000, CASES - begin))
            ]
            for file, tensors in zip(files, verdicts(files)):
                theirs = reference(file)
                if tensors is None:
                    refused += 1
                    continue
                accepted += 1
                self.assertIsNotNone(theirs, f"refused by the reference: {file!r}")
                ours = {
                    t["name"]: (
                        t["dtype"],
                        tuple(t["shape"]),
                        digest(file[t["offset"] : t["offset"] + t["bytes"]]),
                    )
                    for t in tensors
                }
                self.assertEqual(ours, theirs, repr(file))
        self.assertGreater(accepted, CASES // 50)
        self.assertGreater(refused, CASES // 10)
        seconds = round(time.monotonic() - started)
        line = {"row": "R20", "cases": CASES, "failures": 0, "seed": SEED, "seconds": seconds}
        if folder := os.environ.get("FINETUNE_FAULTS_RESULTS"):
            Path(folder, "R20.json").write_text(json.dumps(line) + "\n")
