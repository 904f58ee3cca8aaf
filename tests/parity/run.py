#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the parity tests: the binary against transformers, tokenizers, safetensors, tensorboard.

Exits 0 when all passed, 1 when one failed, and 77 (skipped, as ctest reads it) with one line when
a package that they compare with is not installed. With CI=true in the environment an absent
package is a failure.
"""

import argparse
import gc
import importlib.util
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIPPED = 77
PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "safetensors",
            "sentence_transformers", "sentencepiece", "tensorboard")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--python", help="the Python that has the packages (default: this one)")
    parser.add_argument("--data", type=Path, help="folder of real texts to compare tokenizers on")
    parser.add_argument("-k", dest="pattern", help="only tests whose name holds this")
    parser.add_argument("--file", action="append", help="only tests of this file; may be repeated")
    parser.add_argument("-v", dest="verbose", action="store_true", help="a line for each test")
    args = parser.parse_args()
    if args.python and Path(args.python).absolute() != Path(sys.executable).absolute():
        os.execv(args.python, [args.python, __file__, *without_python(sys.argv[1:])])

    missing = [p for p in PACKAGES if importlib.util.find_spec(p) is None]
    if missing:
        in_ci = os.environ.get("CI", "").lower() in ("1", "true")
        word = "failed" if in_ci else "skipped"
        print(f"parity tests {word}: {sys.executable} lacks {', '.join(missing)}")
        return 1 if in_ci else SKIPPED
    if not args.binary.is_file():
        print(f"parity tests failed: no binary at {args.binary} (scripts/build makes it)")
        return 1

    os.environ["FINETUNE_BINARY"] = str(args.binary.resolve())
    if args.data:
        os.environ["FINETUNE_TEST_TEXTS"] = str(args.data.resolve())
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
    sys.path[:0] = [str(HERE), str(ROOT / "scripts")]
    loader = unittest.TestLoader()
    if args.pattern:
        loader.testNamePatterns = [f"*{args.pattern}*"]
    suite = unittest.TestSuite(
        loader.discover(str(HERE), pattern=file, top_level_dir=str(HERE)) for file in args.file or ["test_*.py"]
    )
    # Trainer collects garbage at the end of each training: a fifth of the time, were the modules of
    # transformers looked through each time.
    gc.freeze()
    verbosity = 2 if args.verbose else 1
    result = unittest.TextTestRunner(verbosity=verbosity, buffer=True).run(suite)
    import warm_program  # next to the tests

    warm_program.stop()
    if result.testsRun == 0:
        print("parity tests failed: no test was found")
        return 1
    return 0 if result.wasSuccessful() else 1


def without_python(arguments):
    out, skip = [], False
    for argument in arguments:
        if skip or argument.startswith("--python="):
            skip = False
        elif argument == "--python":
            skip = True
        else:
            out.append(argument)
    return out


if __name__ == "__main__":
    sys.exit(main())
