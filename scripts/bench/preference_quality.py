#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well DPO learns: the held-out accuracy of the rewards, beside TRL's DPOTrainer, and the greedy answers.

Trains SmolLM2 by LoRA for one epoch on 500 pairs of JCommonsenseQA for each seed, here and with DPOTrainer, and
evaluates both on 200 other pairs. Half of them reject an answer to another question, half a wrong choice. Answers 100 of those questions greedily before and after, and counts the answers
that name the right choice. Prints a Markdown table; exits with 1 if the mean accuracy is further from the peer's
than its seeds are apart (at least 0.01), or if fewer answers are right than before. A seed takes half an hour on
one core, most of it DPOTrainer. Needs the packages of tests/requirements.txt.

    scripts/make_smollm2.py smollm2
    scripts/bench/preference_quality.py --model smollm2 --data FOLDER   (jcommonsenseqa-{train,valid}.jsonl)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAIRS, HELD_OUT, QUESTIONS, BATCH, AT_ONCE = 500, 200, 100, 8, 2
LEAST_SPREAD = 0.01


def peer(args):
    """The command of a process: trains with DPOTrainer and prints what it measures of the held-out pairs."""
    import torch
    from datasets import load_dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    torch.set_num_threads(args.threads)
    files = {split: str(args.folder / f"{split}.jsonl") for split in ("train", "valid")}
    rows = load_dataset("json", data_files=files, cache_dir=str(args.folder / "datasets"))
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32),
        args=DPOConfig(
            output_dir=str(args.folder / "theirs"), seed=args.seed, max_length=512, num_train_epochs=1,
            per_device_train_batch_size=AT_ONCE, gradient_accumulation_steps=BATCH // AT_ONCE,
            per_device_eval_batch_size=4, learning_rate=args.learning_rate, lr_scheduler_type="cosine",
            warmup_steps=0.1, report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
            save_strategy="no", precompute_ref_log_probs=True, disable_tqdm=True),
        train_dataset=rows["train"],
        eval_dataset=rows["valid"],
        processing_class=AutoTokenizer.from_pretrained(args.model),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear"),
    )  # fmt: skip
    trainer.train()
    metrics = trainer.evaluate()
    print(json.dumps([metrics[f"eval_rewards/{name}"] for name in ("accuracies", "margins")]))


def make_harder(path):
    """Lets every other pair reject a wrong choice of the same question: answers of others are easy to know."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for i, row in enumerate(rows):
        choices = row["prompt"][0]["content"].split("\n")[1:]
        right = choices.index(row["chosen"][0]["content"])
        if i % 2 == 1:
            row["rejected"][0]["content"] = choices[(right + 1 + i // 2 % 4) % len(choices)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def run(command, threads, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL, env=environment,
                          text=True, **options)  # fmt: skip


def train_ours(args, seed, out):
    keys = {
        "task": "dpo", "model_name_or_path": args.model, "output_dir": out, "cache_dir": args.folder / "cache",
        "train_file": args.folder / "train.jsonl", "validation_file": args.folder / "valid.jsonl",
        "max_seq_length": 512, "use_peft": True, "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.0,
        "num_train_epochs": 1, "per_device_train_batch_size": AT_ONCE, "effective_batch_size": BATCH,
        "per_device_eval_batch_size": 4, "learning_rate": args.learning_rate, "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1, "seed": seed, "use_cpu": True, "save_strategy": "no", "report_to": "none",
        "eval_strategy": "steps", "eval_steps": PAIRS,
    }  # fmt: skip
    path = args.folder / "run.json"
    path.write_text(json.dumps(keys, default=str))
    run([args.binary, "train", path], args.threads)
    results = json.loads((out / "eval_results.json").read_text())
    return [results[f"eval_rewards/{name}"] for name in ("accuracies", "margins")]


def right_answers(args, model):
    """Of the first held-out questions: greedy answers that name the right choice."""
    out = args.folder / "answers.jsonl"
    run([args.binary, "predict", model, "--chat", "--input", args.folder / "questions.jsonl", "--output", out,
         "--max_new_tokens", 24], args.threads)  # fmt: skip
    rows = (args.folder / "valid.jsonl").read_text().splitlines()[:QUESTIONS]
    right = 0
    for row, answer in zip(rows, out.read_text().splitlines(), strict=True):
        number, choice = json.loads(row)["chosen"][0]["content"].split(". ", 1)
        text = json.loads(answer)["messages"][-1]["content"].strip()
        right += choice in text or text.rstrip(".") == number
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    with tempfile.TemporaryDirectory() as name:
        args.folder = Path(name)
        for split, rows in (("train", PAIRS), ("valid", HELD_OUT)):
            path = args.folder / f"{split}.jsonl"
            run([ROOT / "scripts" / "make_chat_rows.py", args.data / f"jcommonsenseqa-{split}.jsonl", path, "--rows",
                 rows, "--pairs"], args.threads)  # fmt: skip
            make_harder(path)
        with (args.folder / "questions.jsonl").open("w") as questions:
            for line in (args.folder / "valid.jsonl").read_text().splitlines()[:QUESTIONS]:
                questions.write(json.dumps({"messages": json.loads(line)["prompt"]}) + "\n")
        before = right_answers(args, args.model)
        print(f"right greedy answers before: {before} of {QUESTIONS}\n")
        print("| seed | accuracy | DPOTrainer's | margin | DPOTrainer's | right greedy answers |")
        print("|---|---|---|---|---|---|", flush=True)
        found, theirs, is_worse = [], [], False
        for seed in args.seeds:
            out = args.folder / f"run-{seed}"
            ours = train_ours(args, seed, out)
            right = right_answers(args, out)
            command = [sys.executable, __file__, "--peer", "--model", args.model, "--folder", name, "--seed", seed,
                       "--learning_rate", args.learning_rate, "--threads", args.threads]  # fmt: skip
            other = json.loads(run(command, args.threads, stdout=subprocess.PIPE).stdout.splitlines()[-1])
            print(f"| {seed} | {ours[0]:.3f} | {other[0]:.3f} | {ours[1]:.3f} | {other[1]:.3f} | {right} |", flush=True)
            found.append(ours[0])
            theirs.append(other[0])
            is_worse |= right < before
    spread = max(max(values) - min(values) for values in (found, theirs))
    difference = abs(sum(found) - sum(theirs)) / len(found)
    return 1 if is_worse or difference > max(spread, LEAST_SPREAD) else 0


if __name__ == "__main__":
    sys.exit(main())
