#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a LoRA adapter costs: CPU seconds of an update and peak memory, with PEFT's in the same run.

Trains adapters (r 16 on all linear layers) on a model of SmolLM2-135M's shape with random weights,
one row of 512 tokens an update, one thread, in turns; each with few and with more updates, which
takes the start off. PEFT runs in a plain loop with AdamW, without Trainer. Needs the packages of
tests/requirements.txt. Prints a Markdown table; exits with 1 if a limit is exceeded.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
FEW = 2
LENGTH = 512
LORA = {"use_peft": True, "lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05}

# Ours: more keys, and the type of the base's files. PEFT: options of peer().
OURS = {
    "all weights, float32": ({}, "float32"),
    "LoRA, base in float32": (LORA, "float32"),
    "LoRA, base in bfloat16": (LORA, "bfloat16"),
    "LoRA, base in bfloat16, recomputation": ({**LORA, "gradient_checkpointing": True}, "bfloat16"),
    "QLoRA, base in NF4, recomputation": (
        {**LORA, "load_in_4bit": True, "gradient_checkpointing": True}, "bfloat16"),
    "DoRA, base in bfloat16": ({**LORA, "use_dora": True}, "bfloat16"),
}
PEERS = {
    "PEFT, LoRA in float32": [],
    "PEFT, LoRA in float32, recomputation": ["--recompute"],
    "PEFT, QLoRA computed in float32, recomputation": ["--recompute", "--nf4"],
    "PEFT, DoRA in float32": ["--dora"],
}
# (ours, the other, the most CPU seconds and the highest peak of ours by those of the other)
LIMITS = [
    ("LoRA, base in bfloat16", "PEFT, LoRA in float32", 0.55, 0.40),
    ("LoRA, base in bfloat16, recomputation", "PEFT, LoRA in float32, recomputation", None, 0.32),
    ("LoRA, base in float32", "all weights, float32", 0.80, None),
    ("QLoRA, base in NF4, recomputation", "PEFT, QLoRA computed in float32, recomputation", 0.55, 0.40),
    ("QLoRA, base in NF4, recomputation", "LoRA, base in bfloat16, recomputation", 1.15, None),
]


def make_bases(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rope_theta=100000.0, tie_word_embeddings=True,
    ))  # fmt: skip
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model.to(dtype).save_pretrained(folder / name)


def load_peer(base, nf4):
    """The base as PEFT trains on it, in float32 or in NF4 that computes in float32."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    more = {}
    if nf4:
        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
        more["device_map"] = "cpu"
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa", **more)


def peer(base, steps, recompute, dora, nf4):
    """PEFT's training, in a separate process."""
    import torch
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(1)
    model = load_peer(base, nf4)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(
        r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM", use_dora=dora))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    for step in range(steps):
        ids = torch.randint(600, (1, LENGTH), generator=torch.Generator().manual_seed(step))
        model(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def configuration(folder, base, keys, steps):
    path = folder / "run.json"
    path.write_text(json.dumps({
        "task": "clm", "model_name_or_path": str(base), "tokenizer_name": str(FIXTURES / "tokenizers/lighthouse"),
        "train_file": str(FIXTURES / "text/lighthouse.txt"), "validation_split_percentage": 0,
        "max_seq_length": LENGTH, "per_device_train_batch_size": 1, "max_steps": steps, "learning_rate": 2e-4,
        "save_strategy": "no", "logging_steps": steps, "report_to": "none", "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"), **keys,
    }))  # fmt: skip
    return path


def cost(command):
    """CPU seconds and peak in MiB of a process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            said.seek(0)
            sys.exit(said.read())
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(binary, bases, name, steps):
    keys, dtype = OURS[name]
    with tempfile.TemporaryDirectory() as folder:
        return cost([binary, "train", configuration(Path(folder), bases / dtype, keys, steps)])


def theirs(bases, name, steps):
    command = [sys.executable, __file__, "--peer", str(bases / "float32"), "--steps", str(steps)]
    return cost([*command, *PEERS[name]])


def planned(binary, bases, name):
    keys, dtype = OURS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = configuration(Path(folder), bases / dtype, keys, FEW)
        plan = subprocess.run([binary, "plan", path], capture_output=True, text=True, check=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    return int(re.search(r"predicted peak\s+([\d,]+) MiB", plan.stdout)[1].replace(",", ""))


def measure(options, bases):
    names = [name for name in [*OURS, *PEERS] if re.search(options.only or "", name)]
    seconds = {name: [] for name in names}
    peaks = dict.fromkeys(names, 0.0)
    for _ in range(options.rounds):
        for name in names:
            run = [
                ours(options.binary, bases, name, steps) if name in OURS else theirs(bases, name, steps)
                for steps in (FEW, FEW + options.steps)
            ]
            seconds[name].append((run[1][0] - run[0][0]) / options.steps)
            peaks[name] = max(peaks[name], run[1][1])
    return {name: statistics.median(seconds[name]) for name in names}, peaks


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--recompute", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dora", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nf4", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="a regular expression: the rows whose names it finds")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make_bases(options.make)
    if options.peer:
        return peer(options.peer, options.steps, options.recompute, options.dora, options.nf4)
    with tempfile.TemporaryDirectory() as folder:
        bases = Path(folder)
        # In another process: the peak of a child counts what its parent had in memory.
        subprocess.run([sys.executable, __file__, "--make", folder], check=True, stderr=subprocess.DEVNULL)
        seconds, peaks = measure(options, bases)
        plans = {name: planned(options.binary, bases, name) for name in OURS if name in seconds}
    print("| | CPU s an update | peak, MiB | planned, MiB |\n|---|---|---|---|")
    for name, one in seconds.items():
        print(f"| {name} | {one:.2f} | {peaks[name]:.0f} | {plans.get(name, '')} |")
    ok = all(abs(plan - peaks[name]) <= 0.1 * peaks[name] for name, plan in plans.items())
    for name, other, most_seconds, most_peak in LIMITS:
        if name not in seconds or other not in seconds:
            continue
        ratios = seconds[name] / seconds[other], peaks[name] / peaks[other]
        print(f"\n{name} by {other}: {ratios[0]:.2f} of the CPU seconds, {ratios[1]:.2f} of the peak")
        ok = ok and (most_seconds is None or ratios[0] <= most_seconds)
        ok = ok and (most_peak is None or ratios[1] <= most_peak)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
