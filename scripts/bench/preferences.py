#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What DPO costs: CPU seconds of an update and of the reference, and peak memory, beside TRL's DPOTrainer and our SFT.

    python3 scripts/bench/preferences.py [--layers N] [--rounds N] [--threads N] [--bf16]

A Llama of SmolLM2-135M's sizes with random weights, which cost what trained ones do, and a LoRA adapter of rank 16 on
all linear layers; 8 pairs of 2 x 256 tokens an update, half of them prompt, float32 or bfloat16, the reference
computed before. Each program trains for few and for more updates, and the difference takes start and reference off;
the peak is that of the longer run. The reference of 32 pairs: here the difference of a run with and without it in the
cache, in TRL the call that computes it. SFT learns the same rows as 16 conversations. Needs the packages of
tests/requirements.txt. Prints Markdown tables.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from decision import cpu_seconds
from update_cost import UpdateCosts

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
FEW, MORE, BATCH, TOKENS = 1, 4, 8, 256


def make(args):
    """The command of a process: writes the model and the rows."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    words = AutoTokenizer.from_pretrained(TOKENIZER)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=args.layers,
        num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True, max_position_embeddings=2048,
        pad_token_id=words.pad_token_id)  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(args.folder / "model")
    words.save_pretrained(args.folder / "model")
    text = (ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt").read_text().split()

    def said(first, tokens):
        ids = words.encode(" ".join((text * 4)[first : first + tokens]), add_special_tokens=False)[:tokens]
        return words.decode(ids)

    with open(args.folder / "pairs.jsonl", "w") as pairs, open(args.folder / "chats.jsonl", "w") as chats:
        for i in range(BATCH * MORE):  # each side is cut to the model's length
            prompt, chosen, rejected = said(7 * i, 128), said(11 * i, 2 * TOKENS), said(13 * i + 5, 2 * TOKENS)
            pairs.write(json.dumps({"prompt": prompt, "chosen": " " + chosen, "rejected": " " + rejected}) + "\n")
            for answer in (chosen, rejected):
                chats.write(json.dumps({"prompt": prompt, "completion": " " + answer}) + "\n")


def trainer_of(args):
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoTokenizer, LlamaForCausalLM
    from trl import DPOConfig, DPOTrainer

    torch.set_num_threads(args.threads)
    rows = [json.loads(line) for line in (args.folder / "pairs.jsonl").read_text().splitlines()]
    return DPOTrainer(
        model=LlamaForCausalLM.from_pretrained(args.folder / "model", dtype=torch.float32),
        args=DPOConfig(
            output_dir=str(args.folder / "theirs"), max_length=TOKENS, per_device_train_batch_size=BATCH,
            max_steps=args.updates or 1, learning_rate=1e-5, report_to="none", use_cpu=True, bf16=args.bf16,
            gradient_checkpointing=False, save_strategy="no", precompute_ref_log_probs=args.role == "peer"),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(args.folder / "model"),
        peft_config=LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear",
                               task_type="CAUSAL_LM"),
    )  # fmt: skip


def peer(args):
    """The command of a process: DPOTrainer."""
    trainer_of(args).train()


def peer_reference(args):
    """The command of a process: the CPU seconds of the reference."""
    import resource

    trainer = trainer_of(args)
    trainer._precompute_model_hash = "any"
    before = resource.getrusage(resource.RUSAGE_SELF)
    trainer._precompute_ref_logps(trainer.train_dataset, "train", BATCH)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print("reference", after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def ours(args, name, updates, micro_batch, task="dpo"):
    run = args.folder / f"run-{name}-{updates}"
    shutil.rmtree(run, ignore_errors=True)  # else it is finished
    rows = 2 if task == "sft" else 1
    keys = {
        "task": task, "model_name_or_path": str(args.folder / "model"), "output_dir": str(run),
        "train_file": str(args.folder / ("chats.jsonl" if task == "sft" else "pairs.jsonl")),
        "cache_dir": str(args.folder / "cache"), "max_seq_length": TOKENS, "use_peft": True, "lora_r": 16,
        "lora_alpha": 32, "lora_dropout": 0.0, "per_device_train_batch_size": rows * micro_batch,
        "effective_batch_size": rows * BATCH, "max_steps": updates, "learning_rate": 1e-5, "bf16": args.bf16,
        "save_strategy": "no", "report_to": "none", "use_cpu": True,
    }  # fmt: skip
    path = args.folder / f"{name}-{updates}.json"
    path.write_text(json.dumps(keys))
    return [args.binary, "train", str(path)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--layers", type=int, default=30, help="of the model (30)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--role", choices=("make", "peer", "peer_reference"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--updates", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return {"make": make, "peer": peer, "peer_reference": peer_reference}[args.role](args)
    with tempfile.TemporaryDirectory() as name:
        args.folder = Path(name)

        def python(role, updates=0):
            return [sys.executable, __file__, "--role", role, "--folder", name, "--updates", str(updates),
                    "--threads", str(args.threads), "--layers", str(args.layers),
                    *(["--bf16"] if args.bf16 else [])]  # fmt: skip

        # In another process: a child's peak begins with that of its parent.
        cpu_seconds(python("make"), args.threads)
        commands = {
            "DPOTrainer, 8 pairs at once": lambda updates: python("peer", updates),
            "`task: dpo`, 8 pairs at once": lambda updates: ours(args, "dpo8", updates, 8),
            "`task: dpo`, 2 pairs at once": lambda updates: ours(args, "dpo2", updates, 2),
            "`task: sft`, 16 rows at once": lambda updates: ours(args, "sft8", updates, 8, "sft"),
        }
        costs = UpdateCosts(commands, FEW, MORE, args.threads)
        reference = {"DPOTrainer": [], "`task: dpo`": []}
        for _ in range(args.rounds):
            shutil.rmtree(args.folder / "cache" / "reference", ignore_errors=True)
            cold, _ = cpu_seconds(ours(args, "cold", 1, 8), args.threads)
            warm, _ = cpu_seconds(ours(args, "cold", 1, 8), args.threads)
            reference["`task: dpo`"].append(cold - warm)
            done = subprocess.run(python("peer_reference"), check=True, capture_output=True, text=True)
            words = done.stdout[done.stdout.rindex("reference") :].split()
            reference["DPOTrainer"].append(float(words[1]))
            costs.measure()
    costs.print_table("DPOTrainer")
    times = {program: statistics.median(values) for program, values in reference.items()}
    print("\n| reference of 32 pairs | CPU s | of DPOTrainer's |\n|---|---|---|")
    for program, time in times.items():
        print(f"| {program} | {time:.1f} | {time / times['DPOTrainer']:.2f}x |")


if __name__ == "__main__":
    main()
