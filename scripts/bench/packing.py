#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What padding costs: line-by-line text padded, without its padding, grouped by length and packed.

Trains the model of configs/esperberto_small.yaml for some updates on the paragraphs of a text and
on its sentences, a line each, and prints a Markdown table of tokens for each CPU second of one thread.
A run's start is taken off by running it twice, with few and with more updates. --padded_binary is a
build that computes padding (one from before packing); transformers' Trainer takes its own collator,
which pads to the longest of the batch, and text that was tokenised beforehand.

All variants take turns, as the machine may be shared.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = dict(
    num_hidden_layers=4,
    num_attention_heads=4,
    hidden_size=128,
    intermediate_size=512,
    max_position_embeddings=514,
    type_vocab_size=1,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    vocab_size=4000,
)
ROWS = 16
VARIANTS = {
    "finetune, padded": {},
    "finetune, without padding": {},
    "finetune, group_by_length": {"train_sampling_strategy": "group_by_length"},
    "finetune, packing": {"packing": True},
}


def run(command, env):
    """CPU seconds of one process."""
    process = subprocess.Popen(
        [str(c) for c in command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {error.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def train(binary, text, length, keys, steps, work, env):
    """(CPU seconds, tokens) of N updates and their start."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        config = {
            "model_type": "roberta", "tokenizer_name": str(work / "tokenizer"),
            "config_overrides": MODEL, "train_file": str(text), "validation_split_percentage": 0,
            "line_by_line": True, "max_seq_length": length, "per_device_train_batch_size": ROWS,
            "max_steps": steps, "learning_rate": 1e-4, "logging_steps": steps,
            "include_num_input_tokens_seen": "non_padding", "save_strategy": "no",
            "output_dir": folder, "cache_dir": str(work / "cache"), "report_to": "none", **keys,
        }  # fmt: skip
        path = Path(folder) / "run.json"
        path.write_text(json.dumps(config))
        seconds = run([binary, "train", path], env)
        log = json.loads((Path(folder) / "trainer_state.json").read_text())["log_history"]
        return seconds, max(entry.get("num_input_tokens_seen", 0) for entry in log)


def train_with_transformers(args):
    """One process of the peer, tokenised beforehand: prints CPU seconds and tokens of its updates
    as JSON."""
    import torch
    import transformers
    from tokenizers import Tokenizer

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(args.tokenizer / "tokenizer.json")),
        bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
        pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip
    lines = [line for line in args.peer.read_text().splitlines() if line.strip()]
    encoded = tokenizer(lines, truncation=True, max_length=args.length)
    rows = [{"input_ids": ids} for ids in encoded["input_ids"]]
    collator = transformers.DataCollatorForLanguageModeling(tokenizer)
    tokens = []

    def collate(batch):
        batch = collator(batch)
        tokens.append(int(batch["attention_mask"].sum()))
        return batch

    seconds = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, options, state, control, **more):
            seconds.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        transformers.set_seed(1)
        transformers.Trainer(
            model=transformers.RobertaForMaskedLM(transformers.RobertaConfig(**MODEL)),
            args=transformers.TrainingArguments(
                folder, per_device_train_batch_size=ROWS, max_steps=args.steps + 2,
                learning_rate=1e-4, logging_strategy="no", save_strategy="no", use_cpu=True,
                report_to=[], disable_tqdm=True,
            ),
            data_collator=collate,
            train_dataset=rows,
            callbacks=[Clock()],
        ).train()  # fmt: skip
    # Batches are collated one ahead.
    print(
        json.dumps({"seconds": seconds[-1] - seconds[1], "tokens": sum(tokens[2 : args.steps + 2])})
    )


def peer(args, text, length, env):
    command = [
        sys.executable, __file__, "--peer", text, "--tokenizer", args.work / "tokenizer",
        "--steps", args.steps, "--length", length,
    ]  # fmt: skip
    result = subprocess.run([str(c) for c in command], env=env, capture_output=True)
    if result.returncode != 0:
        raise SystemExit(result.stderr.decode()[-2000:])
    return json.loads(result.stdout.splitlines()[-1])


def measure(args, text, length, env):
    """Tokens for each CPU second by variant: the median of the rounds."""
    rates = {}
    for _ in range(args.rounds):
        for name, keys in VARIANTS.items():
            binary = args.padded_binary if name.endswith("padded") else args.binary
            if binary is None:
                continue
            few = train(binary, text, length, keys, 2, args.work, env)
            more = train(binary, text, length, keys, 2 + args.steps, args.work, env)
            rate = (more[1] - few[1]) / (more[0] - few[0])
            rates.setdefault(name, []).append(rate)
        if args.transformers:
            result = peer(args, text, length, env)
            rates.setdefault("transformers, its collator and Trainer", []).append(
                result["tokens"] / result["seconds"]
            )
    return {name: statistics.median(values) for name, values in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--padded_binary", type=Path)
    parser.add_argument("--data", type=Path, help="folder that holds esperanto.txt")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--transformers", action="store_true", help="measure the peer as well")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return train_with_transformers(args)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as work:
        args.work = Path(work)
        text = args.data / "esperanto.txt"
        run(
            [args.binary, "tokenizer", "train", "--type", "byte_level_bpe", "--vocab_size", 4000,
             "--output", args.work / "tokenizer", text],
            env,
        )  # fmt: skip
        sentences = args.work / "sentences.txt"
        parts = re.split(r"(?<=[.!?])\s+", text.read_text())
        sentences.write_text("\n".join(part for part in parts if part.strip()) + "\n")
        for title, path, length in (("paragraphs", text, 512), ("sentences", sentences, 128)):
            rates = measure(args, path, length, env)
            base = rates.get("finetune, padded", 0.0)
            print(
                f"\n{title}, max_seq_length {length}\n\n| | tokens a CPU second | |\n|---|---|---|"
            )
            for name, rate in rates.items():
                ratio = f"{rate / base:.2f}" if base else ""
                print(f"| {name} | {rate:,.0f} | {ratio} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
