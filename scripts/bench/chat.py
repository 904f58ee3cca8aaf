#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What preparing chat data costs: CPU seconds of `finetune prepare`, with TRL's SFTTrainer in the same run.

Conversations of two turns, about 600 bytes each, with the template of Qwen 2.5 that marks the
assistant's text, one thread. Both prepare few and many rows, which takes the start off. Needs the
packages of tests/requirements.txt. Prints a Markdown table; exits with 1 if a limit is exceeded.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adapter import cost

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
TEXT = ROOT / "tests" / "fixtures" / "text" / "lighthouse.txt"
FEW = 20
LIMIT = 1 / 10  # of TRL's CPU seconds


def write_rows(path, count):
    pick = random.Random(1)
    words = TEXT.read_text().split()

    def text(most):
        begin = pick.randrange(len(words) - most)
        return " ".join(words[begin : begin + pick.randint(5, most)])

    with path.open("w") as out:
        for _ in range(count):
            messages = []
            for _ in range(2):
                messages.append({"role": "user", "content": text(30)})
                messages.append({"role": "assistant", "content": text(60)})
            out.write(json.dumps({"messages": messages}) + "\n")
    return path.stat().st_size


def peer(rows):
    """Prints the CPU seconds of TRL's preparation."""
    import torch
    import trl
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"), bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = template().read_text()
    data = Dataset.from_list([json.loads(line) for line in Path(rows).read_text().splitlines()])
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=600, num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        begin = time.process_time()
        trl.SFTTrainer(
            model=model,
            args=trl.SFTConfig(output_dir=folder, report_to="none", use_cpu=True, bf16=False, max_length=1024,
                               assistant_only_loss=True, disable_tqdm=True, gradient_checkpointing=False),
            train_dataset=data,
            processing_class=tokenizer,
        )  # fmt: skip
        print(time.process_time() - begin)


def template():
    import trl

    return Path(trl.__file__).parent / "chat_templates" / "qwen2_5_training.jinja"


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def theirs(rows):
    done = subprocess.run([sys.executable, __file__, "--peer", rows], capture_output=True, text=True, env=environment())
    if done.returncode:
        sys.exit(done.stderr)
    return float(done.stdout.split()[-1])


def ours(binary, rows):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.json"
        config.write_text(json.dumps({
            "task": "sft", "train_file": str(rows), "assistant_only_loss": True, "chat_template_path": str(template()),
            "model_type": "llama", "tokenizer_name": str(TOKENIZER), "max_seq_length": 1024, "max_steps": 1,
            "config_overrides": {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
                                 "num_attention_heads": 2, "max_position_embeddings": 1024},
            "preprocessing_num_workers": 1, "cache_dir": folder + "/cache", "output_dir": folder + "/out",
        }))  # fmt: skip
        return cost([binary, "prepare", config])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer)
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.jsonl", Path(folder) / "many.jsonl"
        write_rows(few, FEW)
        size = write_rows(many, options.rows)
        costs = {"finetune": [], "TRL": []}
        for _ in range(options.rounds):
            costs["finetune"].append(ours(options.binary, many) - ours(options.binary, few))
            costs["TRL"].append(theirs(many) - theirs(few))
    seconds = {name: statistics.median(each) for name, each in costs.items()}
    print(f"{options.rows} rows, {size / 1e6:.1f} MB, one thread\n\n| | CPU s | MB/s |\n|---|---|---|")
    for name, one in seconds.items():
        print(f"| {name} | {one:.2f} | {size / 1e6 / one:.2f} |")
    ratio = seconds["finetune"] / seconds["TRL"]
    print(f"\nfinetune by TRL: 1/{1 / ratio:.0f} of the CPU seconds")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
