#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the small sister of EsperBERTo with transformers' Trainer, once per seed.

This is the yardstick for configs/esperberto_small.yaml: the same text, tokenizer, model, schedule
and number of updates, with the losses and the time they took written as JSON. Each seed runs in a
separate process, so that seconds, CPU seconds and peak memory are that run's alone.

Evaluation masks are drawn again in every evaluation, so the last loss of a run is itself a random
number: the trained model is therefore evaluated on --extra_evaluations further sets of masks.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
VOCAB_SIZE = 4000
BLOCK_SIZE = 128
MODEL = dict(
    vocab_size=VOCAB_SIZE,
    num_hidden_layers=4,
    num_attention_heads=4,
    hidden_size=128,
    intermediate_size=512,
    max_position_embeddings=130,
    type_vocab_size=1,
    layer_norm_eps=1e-12,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    bos_token_id=0,
    pad_token_id=1,
    eos_token_id=2,
)
TRAINING = dict(
    per_device_train_batch_size=8,
    per_device_eval_batch_size=16,
    learning_rate=1e-3,
    lr_scheduler_type="linear",
    warmup_steps=200,
    weight_decay=0.01,
    max_grad_norm=1.0,
    logging_steps=50,
    eval_strategy="steps",
    eval_steps=250,
)


def train_tokenizer(files, folder):
    """Byte-level BPE as `finetune tokenizer train` makes it, loadable by AutoTokenizer."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train(
        files=[str(f) for f in files],
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    bpe.save_model(str(folder))
    vocab, merges = str(folder / "vocab.json"), str(folder / "merges.txt")
    tokenizer = RobertaTokenizerFast(
        vocab=vocab, merges=merges, add_prefix_space=False, model_max_length=BLOCK_SIZE
    )
    assert len(tokenizer) == VOCAB_SIZE and tokenizer.mask_token_id == 4
    return tokenizer


def blocks(tokenizer, files, cache_dir):
    """Rows of BLOCK_SIZE tokens, tokenised and cut exactly as run_mlm.py does it."""
    from datasets import load_dataset

    raw = load_dataset("text", data_files=files, cache_dir=cache_dir)
    tokenised = raw.map(
        lambda rows: tokenizer(rows["text"], return_special_tokens_mask=True),
        batched=True,
        remove_columns=["text"],
    )

    def group_texts(rows):
        joined = {k: [x for row in rows[k] for x in row] for k in rows}
        total = len(joined["input_ids"]) // BLOCK_SIZE * BLOCK_SIZE
        return {
            k: [v[i : i + BLOCK_SIZE] for i in range(0, total, BLOCK_SIZE)]
            for k, v in joined.items()
        }

    return tokenised.map(group_texts, batched=True)


def run_seed(args):
    import torch
    import transformers
    from transformers import (
        DataCollatorForLanguageModeling,
        RobertaConfig,
        RobertaForMaskedLM,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    torch.set_num_threads(args.threads)
    work = Path(args.work_dir)
    set_seed(args.seed)
    tokenizer = train_tokenizer([args.train_file], work / "tokenizer")
    data = blocks(
        tokenizer,
        {"train": args.train_file, "validation": args.validation_file},
        str(work / "cache"),
    )
    model = RobertaForMaskedLM(RobertaConfig(**MODEL))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(work / "out"),
            max_steps=args.max_steps,
            seed=args.seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **TRAINING,
        ),
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
    )
    wall, cpu = time.monotonic(), time.process_time()
    result = trainer.train()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    log = trainer.state.log_history
    curve = [{"step": r["step"], "eval_loss": r["eval_loss"]} for r in log if "eval_loss" in r]
    if not curve or curve[-1]["step"] != args.max_steps:
        final = trainer.evaluate()["eval_loss"]
        curve.append({"step": args.max_steps, "eval_loss": final})
    extra = []
    for i in range(args.extra_evaluations):
        torch.manual_seed(1000 + i)
        extra.append(trainer.evaluate()["eval_loss"])
    if args.save_model:
        trainer.save_model(args.save_model)
    return {
        "seed": args.seed,
        "max_steps": args.max_steps,
        "threads": args.threads,
        "train_rows": len(data["train"]),
        "eval_rows": len(data["validation"]),
        "parameters": sum(p.numel() for p in model.parameters()),
        "eval_loss": curve[-1]["eval_loss"],
        "extra_eval_losses": extra,
        "mean_extra_eval_loss": sum(extra) / len(extra) if extra else None,
        "train_loss": result.training_loss,
        "eval_curve": curve,
        "loss_curve": [
            {"step": r["step"], "loss": r["loss"], "grad_norm": r["grad_norm"]}
            for r in log
            if "loss" in r
        ],
        "train_seconds": wall,
        "train_cpu_seconds": cpu,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }


def summary(runs):
    def spread(values):
        mean = sum(values) / len(values)
        return {"min": min(values), "mean": mean, "max": max(values)}

    return {
        "seeds": [r["seed"] for r in runs],
        "eval_loss": spread([r["eval_loss"] for r in runs]),
        "all_final_eval_losses": spread(
            [x for r in runs for x in [r["eval_loss"], *r["extra_eval_losses"]]]
        ),
        "train_seconds": spread([r["train_seconds"] for r in runs]),
        "train_cpu_seconds": spread([r["train_cpu_seconds"] for r in runs]),
        "peak_rss_bytes": spread([r["peak_rss_bytes"] for r in runs]),
    }


def run_all(args):
    """Starts one process per seed, at most --parallel of them at a time."""
    waiting, running, runs = list(args.seeds), {}, []
    with tempfile.TemporaryDirectory(prefix="esperanto-peer-") as scratch:
        while waiting or running:
            while waiting and len(running) < args.parallel:
                seed = waiting.pop(0)
                out = Path(scratch) / f"seed-{seed}.json"
                command = [sys.executable, __file__, "--seed", str(seed), "--output", str(out)]
                command += ["--work_dir", str(Path(scratch) / f"work-{seed}")]
                for key in ("train_file", "validation_file", "max_steps", "threads"):
                    command += [f"--{key}", str(getattr(args, key))]
                command += ["--extra_evaluations", str(args.extra_evaluations)]
                if args.save_model and seed == args.seeds[0]:
                    command += ["--save_model", args.save_model]
                env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), HF_HUB_OFFLINE="1")
                env["TOKENIZERS_PARALLELISM"] = "false"
                running[seed] = (subprocess.Popen(command, env=env), out)
            time.sleep(0.5)
            for seed, (process, out) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[seed]
                if process.returncode != 0:
                    for other, _ in running.values():
                        other.terminate()
                    raise SystemExit(f"the run with seed {seed} failed ({process.returncode})")
                runs.append(json.loads(out.read_text()))
    runs.sort(key=lambda r: r["seed"])
    return {"model": MODEL, "training": TRAINING, "summary": summary(runs), "runs": runs}


def main():
    data = os.environ.get("ESPERANTO_DATA", ".")
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seed", type=int, help="one run in this process instead of --seeds")
    parser.add_argument("--train_file", default=f"{data}/esperanto.txt")
    parser.add_argument("--validation_file", default=f"{data}/esperanto-valid.txt")
    parser.add_argument("--max_steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=2, help="runs at a time")
    parser.add_argument("--extra_evaluations", type=int, default=5)
    parser.add_argument("--work_dir", help="folder for one run's tokenizer and cache")
    parser.add_argument("--save_model", help="folder for the trained model of the first seed")
    parser.add_argument("--output", default=str(here / "results" / "esperanto_peer.json"))
    args = parser.parse_args()
    if args.seed is None:
        result = run_all(args)
    elif args.work_dir:
        result = run_seed(args)
    else:
        with tempfile.TemporaryDirectory(prefix="esperanto-peer-") as scratch:
            args.work_dir = scratch
            result = run_seed(args)
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    Path(args.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
