#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the numbers that tests/parity compares with: tests/fixtures/parity/mlm.

A tiny RoBERTa with random weights and no dropout is trained by transformers' Trainer on rows that
are masked beforehand and read in order, so that nothing is random: a program that computes the
same thing gets the same losses. Every schedule and every optimizer setting that changes the
numbers has a variant. Run it again only when transformers itself changes; the result is committed.

    model/                 config.json, model.safetensors, tokenizer.json, tokenizer_config.json
    train.jsonl            rows of 32 tokens; eval.jsonl likewise
    train_unequal.jsonl    rows of 6 to 56 tokens with 1 to 14 masks; eval_unequal.jsonl likewise
    trajectory.json        per variant: configuration, log_history, norm of every final tensor
    final-VARIANT.safetensors   final weights of the variants in KEEP_WEIGHTS
    logits.safetensors     input_ids, attention_mask and logits of two rows, one of them padded
"""

import argparse
import json
import os
import random
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "tests" / "fixtures" / "text"
OUTPUT = ROOT / "tests" / "fixtures" / "parity" / "mlm"
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
VOCAB_SIZE = 300
IGNORED = -100

BASE = dict(
    max_steps=24,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=2e-3,
    warmup_steps=4,
    logging_steps=1,
    eval_strategy="steps",
    eval_steps=6,
    train_sampling_strategy="sequential",
    seed=1,
)
VARIANTS = {
    "linear": {},
    "constant": dict(lr_scheduler_type="constant", warmup_steps=0),
    "constant_with_warmup": dict(lr_scheduler_type="constant_with_warmup"),
    "cosine": dict(lr_scheduler_type="cosine"),
    "cosine_half_cycle_more": dict(
        lr_scheduler_type="cosine", lr_scheduler_kwargs=dict(num_cycles=1.5)
    ),
    "cosine_with_restarts": dict(
        lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs=dict(num_cycles=3)
    ),
    "polynomial": dict(
        lr_scheduler_type="polynomial", lr_scheduler_kwargs=dict(power=2.0, lr_end=1e-4)
    ),
    "inverse_sqrt": dict(lr_scheduler_type="inverse_sqrt"),
    "cosine_with_min_lr": dict(
        lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs=dict(min_lr=2e-4)
    ),
    "cosine_warmup_with_min_lr": dict(
        lr_scheduler_type="cosine_warmup_with_min_lr",
        lr_scheduler_kwargs=dict(min_lr_rate=0.1, warmup_lr_rate=0.05),
    ),
    "warmup_stable_decay": dict(
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs=dict(num_decay_steps=8, min_lr_ratio=0.1),
    ),
    "reduce_lr_on_plateau": dict(
        lr_scheduler_type="reduce_lr_on_plateau",
        warmup_steps=0,
        eval_steps=2,
        lr_scheduler_kwargs=dict(factor=0.5, patience=0, threshold=0.02),
    ),
    "greedy": dict(
        lr_scheduler_type="greedy",
        warmup_steps=0,
        eval_steps=2,
        lr_scheduler_kwargs=dict(factor=0.8, patience=0, threshold=0.1, min_lr=1e-4, max_lr=1e-2),
    ),
    "warmup_ratio": dict(warmup_steps=0.25),
    "epochs": dict(max_steps=-1, num_train_epochs=2.4),
    "weight_decay": dict(weight_decay=1.0, learning_rate=4e-3),
    # Adam hides a constant factor in the gradient unless its epsilon is large.
    "clipped": dict(max_grad_norm=0.5, adam_epsilon=1e-2),
    "clipped_at_times": dict(max_grad_norm=1.6, adam_epsilon=1e-2),
    "unclipped": dict(max_grad_norm=0.0, adam_epsilon=1e-2),
    "label_smoothing": dict(label_smoothing_factor=0.1),
    "adam": dict(adam_beta1=0.8, adam_beta2=0.95, adam_epsilon=1e-4),
    "drop_last": dict(dataloader_drop_last=True),
    "logged_every_five": dict(logging_steps=5, logging_first_step=True),
    "unequal": dict(train_file="train_unequal.jsonl", validation_file="eval_unequal.jsonl"),
}
KEEP_WEIGHTS = ("linear", "weight_decay")


def make_tokenizer(folder):
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train(
        files=[str(TEXT / "lighthouse.txt")],
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    with tempfile.TemporaryDirectory() as scratch:
        bpe.save_model(scratch)
        tokenizer = RobertaTokenizerFast(
            vocab=f"{scratch}/vocab.json", merges=f"{scratch}/merges.txt", model_max_length=64
        )
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_model(tokenizer, folder):
    import torch
    from transformers import RobertaConfig, RobertaForMaskedLM

    torch.manual_seed(20)
    model = RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=66,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            initializer_range=0.05,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    # Biases and norms start at 0 and 1: a reader that mixed them up would not be found out.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return model


def masked(ids, count, rng):
    """One row with `count` targets: 80 % <mask>, 10 % another token, 10 % unchanged."""
    row, labels = list(ids), [IGNORED] * len(ids)
    for position in rng.sample(range(len(ids)), count):
        labels[position] = row[position]
        draw = rng.random()
        if draw < 0.8:
            row[position] = 4
        elif draw < 0.9:
            row[position] = rng.randrange(5, VOCAB_SIZE)
    return {"input_ids": row, "attention_mask": [1] * len(ids), "labels": labels}


def make_rows(tokenizer, text, rows, lengths, rng):
    """Rows cut from a text one after the other; `lengths` yields (tokens, targets)."""
    stream = [i for line in text.read_text().splitlines() for i in tokenizer(line)["input_ids"]]
    out, start = [], 0
    for _ in range(rows):
        length, targets = lengths()
        out.append(masked(stream[start : start + length], targets, rng))
        assert len(out[-1]["input_ids"]) == length
        start += length
    return out


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in rows))


def make_data(tokenizer, folder):
    rng = random.Random(20)

    def equal():
        return 32, 5

    def unequal():
        length = rng.randint(6, 56)
        return length, rng.randint(1, max(1, length // 4))

    # 76 rows: the last batch of an epoch has 4, and 24 updates of 8 rows go into a third epoch.
    for name, text, rows, lengths in [
        ("train.jsonl", "lighthouse.txt", 76, equal),
        ("eval.jsonl", "lighthouse-valid.txt", 20, equal),
        ("train_unequal.jsonl", "lighthouse.txt", 76, unequal),
        ("eval_unequal.jsonl", "lighthouse-valid.txt", 20, unequal),
    ]:
        write_jsonl(folder / name, make_rows(tokenizer, TEXT / text, rows, lengths, rng))


def collate(rows):
    import torch

    longest = max(len(r["input_ids"]) for r in rows)
    padding = {"input_ids": 1, "attention_mask": 0, "labels": IGNORED}
    return {
        key: torch.tensor([r[key] + [pad] * (longest - len(r[key])) for r in rows])
        for key, pad in padding.items()
    }


def make_trainer(config, folder, output_dir, **overrides):
    """transformers' Trainer for one variant; tests/parity resumes checkpoints with it too."""
    from transformers import RobertaForMaskedLM, Trainer, TrainingArguments

    config = {**BASE, **config, **overrides}
    read = lambda name: [json.loads(x) for x in (folder / name).read_text().splitlines()]
    train = read(config.pop("train_file", "train.jsonl"))
    evaluation = read(config.pop("validation_file", "eval.jsonl"))
    return Trainer(
        model=RobertaForMaskedLM.from_pretrained(folder / "model"),
        args=TrainingArguments(
            output_dir=str(output_dir),
            optim="adamw_torch",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **{"save_strategy": "no", **config},
        ),
        train_dataset=train,
        eval_dataset=evaluation,
        data_collator=collate,
    )


def norms(model):
    return {n: round(float(p.detach().norm()), 7) for n, p in model.named_parameters()}


def make_trajectories(folder):
    from safetensors.torch import save_file

    kept = ("loss", "grad_norm", "learning_rate", "eval_loss", "epoch", "step")
    trajectories = {}
    for name, config in VARIANTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            trainer = make_trainer(config, folder, scratch)
            result = trainer.train()
        trajectories[name] = {
            "config": {**BASE, **config},
            "log": [
                {k: r[k] for k in kept if k in r}
                for r in trainer.state.log_history
                if "loss" in r or "eval_loss" in r
            ],
            "global_step": trainer.state.global_step,
            "train_loss": result.training_loss,
            "norms": norms(trainer.model),
        }
        if name in KEEP_WEIGHTS:
            weights = {n: p.detach().contiguous() for n, p in trainer.model.named_parameters()}
            save_file(weights, folder / f"final-{name}.safetensors", metadata={"format": "pt"})
    (folder / "trajectory.json").write_text(format_trajectories(trajectories))


def format_trajectories(trajectories):
    """JSON with one log entry a line, so that a change shows up as a readable difference."""
    parts = []
    for name, t in trajectories.items():
        log = ",\n   ".join(json.dumps(r) for r in t["log"])
        fields = [f'"{k}": {json.dumps(v)}' for k, v in t.items() if k != "log"]
        parts.append(f' "{name}": {{\n  ' + ",\n  ".join(fields) + f',\n  "log": [\n   {log}]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def make_logits(model, folder):
    import torch
    from safetensors.torch import save_file

    rows = [json.loads(x) for x in (folder / "eval_unequal.jsonl").read_text().splitlines()]
    rows.sort(key=lambda r: len(r["input_ids"]))
    batch = collate([rows[2], rows[6]])
    model.eval()
    with torch.no_grad():
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    tensors = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "logits": logits.contiguous(),
    }
    save_file(tensors, folder / "logits.safetensors", metadata={"format": "pt"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    folder = parser.parse_args().output

    import torch

    torch.set_num_threads(1)
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "model").mkdir(parents=True)
    tokenizer = make_tokenizer(folder / "model")
    model = make_model(tokenizer, folder / "model")
    make_data(tokenizer, folder)
    make_trajectories(folder)
    make_logits(model, folder)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{folder}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
