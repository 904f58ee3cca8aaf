#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""CPU seconds and peak memory of updates of a causal language model, beside transformers' Trainer.

    scripts/make_smollm2.py runs/smollm2-135m-instruct
    scripts/bench/clm.py --model runs/smollm2-135m-instruct --text shakespeare.txt

    scripts/bench/clm.py --shape qwen3_5_text --rows 2 --text shakespeare.txt

Both train all weights in float32 with AdamW on the same blocks, one thread, without evaluation and
checkpoints. Runs of few and of more updates alternate, finetune and Trainer in turn: the difference
in CPU seconds by the difference in updates is what one update takes, so that starting counts for
neither. Peaks are those of the longer run, the writing of the finished model included for both.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Random models of 4 layers, 512 wide (--shape), with the tokenizer of the tests.
SHAPES = {
    "qwen3_5_text": dict(
        intermediate_size=1536,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        tie_word_embeddings=True,
    ),
    "olmoe": dict(
        intermediate_size=256,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=64,
        num_experts_per_tok=8,
    ),
    "lfm2": dict(
        block_auto_adjust_ff_dim=False,
        intermediate_size=1536,
        num_attention_heads=8,
        num_key_value_heads=4,
        layer_types=["conv", "conv", "full_attention", "conv"],
    ),
}
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "lighthouse"


def make_shape(name, folder):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        name,
        vocab_size=4096,
        hidden_size=512,
        num_hidden_layers=4,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
        **SHAPES[name],
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for path in TOKENIZER.glob("*.json"):
        shutil.copy(path, folder)


def train_with_transformers(settings):
    """The peer's process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    torch.set_num_threads(1)
    length, rows = settings["length"], settings["rows"]
    tokenizer = AutoTokenizer.from_pretrained(settings["model"])
    with open(settings["text"], encoding="utf-8") as file:
        ids = [i for line in file.readlines()[:20000] for i in tokenizer(line)["input_ids"]]
    blocks = [ids[i : i + length] for i in range(0, len(ids) - length, length)]

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return len(blocks)

        def __getitem__(self, index):
            block = torch.tensor(blocks[index])
            return {"input_ids": block, "labels": block.clone()}

    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32),
        args=TrainingArguments(
            output_dir=settings["output"],
            max_steps=settings["steps"],
            per_device_train_batch_size=rows,
            learning_rate=1e-5,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1,
        ),
        train_dataset=Samples(),
    )
    trainer.train()
    trainer.save_model()


def measure(command, folder):
    """CPU seconds and peak MiB of a process and its children."""
    env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1")
    with open(folder / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit((folder / "log").read_text()[-3000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def ours(args, steps, folder):
    config = folder / f"ours-{steps}.json"
    keys = {
        "task": "clm",
        "model_name_or_path": str(args.model),
        "train_file": str(args.text),
        "output_dir": str(folder / f"ours-{steps}"),
        "max_seq_length": args.length,
        "per_device_train_batch_size": args.rows,
        "max_steps": steps,
        "learning_rate": 1e-5,
        "validation_split_percentage": 0,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "cache_dir": str(folder / "cache"),
        "overwrite_cache": True,
        "preprocessing_num_workers": 1,
        "logging_steps": 1,
        **args.keys,
    }
    config.write_text(json.dumps(keys))
    return [args.binary, "train", str(config)]


def theirs(args, steps, folder):
    settings = {
        "model": str(args.model),
        "text": str(args.text),
        "output": str(folder / f"theirs-{steps}"),
        "length": args.length,
        "rows": args.rows,
        "steps": steps,
    }
    return [args.python, __file__, "--peer", json.dumps(settings)]


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--peer":
        return train_with_transformers(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="folder of the model")
    parser.add_argument("--shape", choices=SHAPES, help="a random model instead, made in --model")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--binary", default=str(ROOT / "build" / "finetune"))
    parser.add_argument("--python", default=sys.executable, help="has torch and transformers")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--steps", type=int, nargs=2, default=[1, 4], help="of the two runs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--keys", type=json.loads, default={}, help="further keys of finetune's runs, as JSON"
    )
    parser.add_argument(
        "--only", choices=["finetune", "transformers"], help="measure one of the two programs"
    )
    parser.add_argument("--output", type=Path, help="file for the results")
    args = parser.parse_args()
    if args.shape:
        args.model = args.model or Path(tempfile.mkdtemp()) / args.shape
        make_shape(args.shape, args.model)
    few, more = args.steps
    commands = {"finetune": ours, "transformers": theirs}
    if args.only:
        commands = {args.only: commands[args.only]}
    seconds = {name: [] for name in commands}
    peaks = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                short, _ = measure(command(args, few, folder), folder)
                long, peak = measure(command(args, more, folder), folder)
            seconds[name].append((long - short) / (more - few))
            peaks[name].append(peak)
            print(f"{name}: {seconds[name][-1]:.2f} CPU s an update, peak {peak:.0f} MiB", flush=True)
    result = {
        "model": args.model.name,
        "rows": args.rows,
        "length": args.length,
        "keys": args.keys,
        **{
            name: {
                "cpu_seconds_an_update": round(statistics.median(seconds[name]), 3),
                "all": [round(value, 3) for value in seconds[name]],
                "peak_mib": round(max(peaks[name])),
            }
            for name in seconds
        },
    }
    print(json.dumps(result, indent=1))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
