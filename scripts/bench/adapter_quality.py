#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well adapters learn: full fine-tuning, LoRA, DoRA and QLoRA, beside PEFT (and bitsandbytes).

Trains SmolLM2 for one epoch on 500 speeches of Shakespeare, with each seed, here and in a plain loop with
transformers, PEFT and AdamW, and evaluates all results with transformers and PEFT on 200 other speeches.
Prints a Markdown table; exits with 1 if the mean of a kind is further from the peer's than its seeds are
apart (at least 0.01). Takes about an hour on two cores. Needs the packages of tests/requirements.txt.

    scripts/make_smollm2.py smollm2
    scripts/bench/adapter_quality.py --model smollm2 --text shakespeare.txt
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from adapter import LORA, ROOT, load_peer

ROWS, HELD_OUT, BATCH = 500, 200, 16
# Keys of ours; options of peer().
KINDS = {
    "full": ({"learning_rate": 5e-5}, []),
    "LoRA": ({**LORA, "learning_rate": 5e-4}, ["--lora"]),
    "DoRA": ({**LORA, "learning_rate": 5e-4, "use_dora": True}, ["--lora", "--dora"]),
    "QLoRA": ({**LORA, "learning_rate": 5e-4, "load_in_4bit": True}, ["--lora", "--nf4"]),
}
LEAST_SPREAD = 0.01


def speeches(path):
    """Rows to train on and rows to evaluate, each a speech with its speaker."""
    rows = [text for text in path.read_text().split("\n\n") if 30 <= len(text) <= 60]
    return rows[:ROWS], rows[-HELD_OUT:]


def write_rows(path, rows):
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))


def batches(tokenizer, rows, order):
    """Padded batches of token ids with their labels."""
    import torch

    encoded = [torch.tensor(tokenizer(row)["input_ids"]) for row in rows]
    for start in range(0, len(rows), BATCH):
        samples = [encoded[i] for i in order[start : start + BATCH]]
        pad = torch.nn.utils.rnn.pad_sequence
        yield {
            "input_ids": pad(samples, batch_first=True, padding_value=0),
            "attention_mask": pad([torch.ones_like(one) for one in samples], batch_first=True),
            "labels": pad(samples, batch_first=True, padding_value=-100),
        }


def evaluate(options):
    """Prints the mean loss of a token of the held-out rows."""
    import torch
    from peft import PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    is_adapter = options.result and (options.result / "adapter_config.json").exists()
    base = options.model if is_adapter or not options.result else options.result
    model = load_peer(base, options.nf4)
    if is_adapter:
        model = PeftModel.from_pretrained(model, options.result)
    model.eval()
    total = tokens = 0
    with torch.no_grad():
        for batch in batches(tokenizer, speeches(options.text)[1], range(HELD_OUT)):
            count = int((batch["labels"][:, 1:] != -100).sum())
            total += float(model(**batch).loss) * count
            tokens += count
    print(total / tokens)


def peer(options):
    """PEFT's training, in a separate process."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoTokenizer, get_linear_schedule_with_warmup, set_seed

    set_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = load_peer(options.model, options.nf4)
    if options.lora:
        model = get_peft_model(model, LoraConfig(
            r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM",
            use_dora=options.dora))
    model.train()
    optimizer = torch.optim.AdamW(
        [weight for weight in model.parameters() if weight.requires_grad], lr=options.learning_rate, weight_decay=0)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, -(-ROWS // BATCH))
    rows = speeches(options.text)[0]
    for batch in batches(tokenizer, rows, torch.randperm(ROWS).tolist()):
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.save_pretrained(options.result)
    tokenizer.save_pretrained(options.result)


def train_ours(options, folder, kind, seed, out):
    keys = {
        "task": "clm", "model_name_or_path": str(options.model), "train_file": str(folder / "train.jsonl"),
        "validation_file": str(folder / "valid.jsonl"), "line_by_line": True, "max_seq_length": 128,
        "num_train_epochs": 1,
        "per_device_train_batch_size": BATCH, "lr_scheduler_type": "linear", "weight_decay": 0, "seed": seed,
        "save_strategy": "no", "report_to": "none", "output_dir": str(out), "cache_dir": str(folder / "cache"),
        **KINDS[kind][0],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(keys))
    subprocess.run([options.binary, "train", folder / "run.json"], check=True, stderr=subprocess.DEVNULL)


def this_script(options, *words):
    command = [sys.executable, __file__, "--model", options.model, "--text", options.text, *words]
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    return done.stdout


def loss_of(options, kind, result=None):
    words = ["--evaluate", *(["--result", result] if result else []), *(["--nf4"] if kind == "QLoRA" else [])]
    return float(this_script(options, *words).split()[-1])


def compare(options):
    losses = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, valid = speeches(options.text)
        write_rows(folder / "train.jsonl", train)
        write_rows(folder / "valid.jsonl", valid)
        for kind in ("full", "QLoRA"):
            print(f"before training, {'four bits' if kind == 'QLoRA' else 'float32'}: {loss_of(options, kind):.3f}")
        for seed in options.seeds:
            for kind in options.kinds:
                keys, words = KINDS[kind]
                out = folder / "out"
                train_ours(options, folder, kind, seed, out)
                losses.setdefault((kind, "ours"), []).append(loss_of(options, kind, out))
                subprocess.run(["rm", "-rf", out], check=True)
                this_script(options, "--peer", "--seed", seed, "--result", out, "--learning_rate",
                            keys["learning_rate"], *words)  # fmt: skip
                losses.setdefault((kind, "PEFT"), []).append(loss_of(options, kind, out))
                subprocess.run(["rm", "-rf", out], check=True)
                print(seed, kind, losses[kind, "ours"][-1], losses[kind, "PEFT"][-1], file=sys.stderr, flush=True)
    ok = True
    print("| | here, by seed | mean | PEFT, by seed | mean |\n|---|---|---|---|---|")
    for kind in options.kinds:
        ours, theirs = losses[kind, "ours"], losses[kind, "PEFT"]
        means = [sum(one) / len(one) for one in (ours, theirs)]
        texts = [", ".join(f"{loss:.3f}" for loss in one) for one in (ours, theirs)]
        print(f"| {kind} | {texts[0]} | {means[0]:.3f} | {texts[1]} | {means[1]:.3f} |")
        spread = max(max(one) - min(one) for one in (ours, theirs))
        ok = ok and abs(means[0] - means[1]) <= max(spread, LEAST_SPREAD)
    return 0 if ok else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--learning_rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    for flag in ("--peer", "--evaluate", "--lora", "--dora", "--nf4"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.evaluate:
        return evaluate(options)
    if options.peer:
        return peer(options)
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
