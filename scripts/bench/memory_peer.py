#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One run of transformers' Trainer for memory.py: masked language modelling of random rows.

memory_peer.py FILE, a JSON file with the model's shape, the rows' length and TrainingArguments.
Writes a line "train STEP/STEPS ..." after each update, as `finetune train` does.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class MaskedRows(torch.utils.data.Dataset):
    """Full rows: 15 % of the tokens predicted, of these 80 % masked and 10 % replaced."""

    def __init__(self, rows, length, vocab_size):
        self.rows, self.length, self.vocab_size = rows, length, vocab_size

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        ids = torch.randint(5, self.vocab_size, (self.length,), generator=random)
        ids[0], ids[-1] = 0, 2
        labels = ids.clone()
        predicted = torch.rand(self.length, generator=random) < 0.15
        predicted[0] = predicted[-1] = False
        labels[~predicted] = -100
        kind = torch.rand(self.length, generator=random)
        ids[predicted & (kind < 0.8)] = 4
        replaced = predicted & (kind >= 0.8) & (kind < 0.9)
        count = int(replaced.sum())
        ids[replaced] = torch.randint(5, self.vocab_size, (count,), generator=random)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


class Mark(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        print(f"train {state.global_step}/{state.max_steps} ", file=sys.stderr, flush=True)


def main():
    asked = json.loads(Path(sys.argv[1]).read_text())
    keys, shape = asked["keys"], asked["shape"]
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            **keys,
        )
        set_seed(keys["seed"])
        model = RobertaForMaskedLM(RobertaConfig(**shape))
        rows = keys["per_device_train_batch_size"] * keys["gradient_accumulation_steps"]
        data = MaskedRows(rows * keys["max_steps"], asked["sequence"], shape["vocab_size"])
        Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Mark()]).train()


if __name__ == "__main__":
    main()
