#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an update of a decision model costs: CPU seconds and peak memory beside laya's trainer, in turns.

    python3 scripts/bench/laya_update.py [--layers N] [--rounds N] [--threads N] [--micro-batches 8 2]

A ModernBERT of the base size with laya's head and random weights, which cost what trained ones do; 8 questions of
256 tokens an update, float32, AdamW, cross entropy (laya's soft-ce), without evaluation and saves. Each program
trains for few and for more updates, and the difference takes the start off; the peak is that of the longer run. Needs
the packages of tests/requirements.txt. Prints a Markdown table.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from decision import cpu_seconds
from update_cost import UpdateCosts

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"
FEW, MORE, BATCH, TOKENS = 2, 6, 8, 256


def make(args):
    """The command of a process: writes the model and the questions."""
    import torch
    from laya.common import DecisionModel
    from laya.train import save_checkpoint
    from transformers import AutoModel, AutoTokenizer, ModernBertConfig

    words = AutoTokenizer.from_pretrained(TOKENIZER)
    sizes = {} if args.layers is None else {"num_hidden_layers": args.layers}
    torch.manual_seed(1)
    config = ModernBertConfig(vocab_size=50368, pad_token_id=words.pad_token_id, **sizes)
    model = DecisionModel(AutoModel.from_config(config))
    settings = {"encoder": "base", "head_layers": 2, "act_costs": {"escalate": 0.5}, "max_len": TOKENS,
                "head_max_len": 96}  # fmt: skip
    save_checkpoint(model, words, settings, str(args.folder / "model"))
    text = (ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt").read_text().split()
    tone = {"type": "choice", "instructions": "What is the tone?", "criteria": {"calm": "", "rough": "", "other": ""}}
    with open(args.folder / "rows.jsonl", "w") as file:
        for i in range(BATCH * MORE):  # each state is cut to the model's length
            state = " ".join((text * 2)[7 * i : 7 * i + 2 * TOKENS])
            answer = {"tone": ["calm", "rough", "other"][i % 3]}
            file.write(json.dumps({"state": state, "questions": {"tone": tone}, "expected": answer}) + "\n")


def peer(args):
    """The command of a process: laya's train_model()."""
    import torch
    from laya.train import TrainConfig, items_from_rows, load_checkpoint, read_jsonl, train_model

    torch.set_num_threads(args.threads)
    model, words, cfg = load_checkpoint(str(args.folder / "model"))
    rows = read_jsonl(args.folder / "rows.jsonl")[: BATCH * args.updates]
    items, _ = items_from_rows(words, rows, cfg["max_len"], cfg["head_max_len"])
    config = TrainConfig(epochs=1, micro_batch=BATCH, grad_accum=1, loss="soft-ce", log_every=0)
    train_model(model, words, items, config, torch.device("cpu"), cfg["max_len"], cfg["head_max_len"])


def ours(folder, updates, micro_batch, binary):
    shutil.rmtree(folder / f"run-{micro_batch}-{updates}", ignore_errors=True)  # else it is finished
    keys = {
        "task": "decision", "decision_head": "laya", "model_name_or_path": str(folder / "model"),
        "train_file": str(folder / "rows.jsonl"), "output_dir": str(folder / f"run-{micro_batch}-{updates}"),
        "cache_dir": str(folder / "cache"), "shuffle_options": False,
        "per_device_train_batch_size": micro_batch, "effective_batch_size": BATCH, "max_steps": updates,
        "learning_rate": 2.5e-5, "save_strategy": "no", "report_to": "none", "use_cpu": True,
    }  # fmt: skip
    path = folder / f"ours-{micro_batch}-{updates}.json"
    path.write_text(json.dumps(keys))
    return [binary, "train", str(path)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--layers", type=int, help="of the model (22)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[8, 2], help="questions at once here")
    parser.add_argument("--role", choices=("make", "peer"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--updates", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return {"make": make, "peer": peer}[args.role](args)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def python(role, updates=0):
            more = [] if args.layers is None else ["--layers", str(args.layers)]
            return [sys.executable, __file__, "--role", role, "--folder", name, "--updates", str(updates),
                    "--threads", str(args.threads), *more]  # fmt: skip

        # In another process: a child's peak begins with that of its parent.
        cpu_seconds(python("make"), args.threads)
        commands = {"laya 0.4.15, `soft-ce`": lambda updates: python("peer", updates)}
        for size in args.micro_batches:
            commands[f"`decision_head: laya`, {size} at once"] = lambda updates, size=size: ours(
                folder, updates, size, args.binary
            )
        costs = UpdateCosts(commands, FEW, MORE, args.threads)
        for _ in range(args.rounds):
            costs.measure()
    costs.print_table("laya")


if __name__ == "__main__":
    sys.exit(main())
