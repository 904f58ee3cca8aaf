#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far the losses and gradient norms of each family are from those of transformers: the worst relative
deviation over the updates of tests/parity/test_models.py (masked words) and test_clm.py (next words).

Writes results/models.json; scripts/docs --tables then renders docs/models.md. Needs tests/requirements.txt.

  models.py [--binary build/finetune] [--only FAMILY,FAMILY]
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results" / "models.json"
# Names in test_models.py of further settings of a family.
ALIASES = {"untied": "roberta", "big_bird_sparse": "big_bird"}


def measure(binary, only):
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as file:
        environment = {
            **os.environ,
            "FINETUNE_BINARY": str(binary.resolve()),
            "FINETUNE_DEVIATIONS": file.name,
            "PYTHONPATH": str(ROOT / "scripts"),
        }
        selected = []
        if only:
            environment["FINETUNE_TEST_FAMILIES"] = only
            for family in only.split(","):
                selected += ["-k", f"_{family.replace('-', '_')}_trains"]
            selected += ["-k", "CausalLm"]
        command = [sys.executable, "-m", "unittest", *selected, "test_models", "test_clm"]
        subprocess.run(command, cwd=ROOT / "tests" / "parity", env=environment, check=True)
        return [json.loads(line) for line in file]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--only")
    options = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    today = datetime.date.today().isoformat()
    for row in measure(options.binary, options.only):
        name = ALIASES.get(row["family"], row["family"])
        known[name] = {
            "updates": row["steps"],
            "loss": max(row["loss"], row["eval_loss"]),
            "grad_norm": row["grad_norm"],
            "date": today,
        }
    RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    print(f"{RESULTS.relative_to(ROOT)}: {len(known)} families")


if __name__ == "__main__":
    main()
