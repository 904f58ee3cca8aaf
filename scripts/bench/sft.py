#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What instruction tuning costs: CPU seconds of an update and peak memory, with TRL's SFTTrainer in the same run.

Trains an adapter (r 16 on all linear layers) on a model of SmolLM2-135M's shape with random weights,
one packed row of 512 tokens an update, float32, one thread, in turns; each with few and with more
updates, which takes the start and the preparation off. Needs the packages of tests/requirements.txt.
Prints a Markdown table; exits with 1 if a limit is exceeded.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from adapter import LORA, ROOT, cost, make_bases

from chat import TOKENIZER, template, write_rows

FEW, LENGTH, ROWS = 2, 512, 200
OURS = {"finetune": {}, "finetune, recomputation": {"gradient_checkpointing": True}}
PEERS = {"SFTTrainer": False, "SFTTrainer, recomputation": True}
# (ours, the other, the most CPU seconds and the highest peak of ours by those of the other)
LIMITS = [("finetune", "SFTTrainer", 0.55, 0.45), ("finetune, recomputation", "SFTTrainer, recomputation", 0.55, 0.45)]


def ours(binary, base, rows, keys, steps):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.json"
        config.write_text(json.dumps({
            "task": "sft", "model_name_or_path": str(base), "tokenizer_name": str(TOKENIZER), "train_file": str(rows),
            "chat_template_path": str(template()), "assistant_only_loss": True, "packing": True,
            "max_seq_length": LENGTH, "per_device_train_batch_size": 1, "max_steps": steps, "learning_rate": 2e-4,
            "save_strategy": "no", "logging_steps": steps, "report_to": "none", "preprocessing_num_workers": 1,
            "output_dir": folder + "/out", "cache_dir": folder + "/cache", **LORA, **keys,
        }))  # fmt: skip
        return cost([binary, "train", config])


def peer(base, rows, steps, recompute):
    """SFTTrainer's training, in a separate process."""
    import peft
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"), bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = template().read_text()
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    with tempfile.TemporaryDirectory() as folder:
        trl.SFTTrainer(
            model=model,
            args=trl.SFTConfig(
                output_dir=folder, report_to="none", use_cpu=True, bf16=False, max_length=LENGTH, packing=True,
                packing_strategy="bfd", assistant_only_loss=True, per_device_train_batch_size=1, max_steps=steps,
                learning_rate=2e-4, save_strategy="no", logging_steps=steps, disable_tqdm=True,
                gradient_checkpointing=recompute),
            train_dataset=Dataset.from_list([json.loads(line) for line in Path(rows).read_text().splitlines()]),
            processing_class=tokenizer,
            peft_config=peft.LoraConfig(
                r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"),
        ).train()  # fmt: skip


def theirs(base, rows, recompute, steps):
    command = [sys.executable, __file__, "--peer", str(base), "--rows-file", str(rows), "--steps", str(steps)]
    return cost([*command, *(["--recompute"] if recompute else [])])


def measure(options, folder, rows):
    seconds = {name: [] for name in [*OURS, *PEERS]}
    peaks = dict.fromkeys(seconds, 0.0)
    for _ in range(options.rounds):
        for name in seconds:
            run = [
                ours(options.binary, folder / "float32", rows, OURS[name], steps) if name in OURS
                else theirs(folder / "float32", rows, PEERS[name], steps)
                for steps in (FEW, FEW + options.steps)
            ]  # fmt: skip
            seconds[name].append((run[1][0] - run[0][0]) / options.steps)
            peaks[name] = max(peaks[name], run[1][1])
    return {name: statistics.median(each) for name, each in seconds.items()}, peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--rows-file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--recompute", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make_bases(options.make)
    if options.peer:
        return peer(options.peer, options.rows_file, options.steps, options.recompute)
    with tempfile.TemporaryDirectory() as folder:
        # In another process: the peak of a child counts what its parent had in memory.
        subprocess.run([sys.executable, __file__, "--make", folder], check=True, stderr=subprocess.DEVNULL)
        rows = Path(folder) / "rows.jsonl"
        write_rows(rows, ROWS)
        seconds, peaks = measure(options, Path(folder), rows)
    print("| | CPU s an update | peak, MiB |\n|---|---|---|")
    for name, one in seconds.items():
        print(f"| {name} | {one:.2f} | {peaks[name]:.0f} |")
    ok = True
    for name, other, most_seconds, most_peak in LIMITS:
        ratios = seconds[name] / seconds[other], peaks[name] / peaks[other]
        print(f"\n{name} by {other}: {ratios[0]:.2f} of the CPU seconds, {ratios[1]:.2f} of the peak")
        ok = ok and ratios[0] <= most_seconds and ratios[1] <= most_peak
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
