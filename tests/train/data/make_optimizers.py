#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes optimizer_NAME.pt: optimizer.pt of bitsandbytes' AdamW at 8 bits, transformers' Adafactor
and torch's AdamW and SGD after two updates of the parameters in small_optimizer.h; and scaler.pt of
torch's GradScaler as after an overflow and three updates without one."""
import pathlib

import bitsandbytes
import torch
from transformers.optimization import Adafactor

FOLDER = pathlib.Path(__file__).parent
SHAPES = [(64, 70), (70,), (4, 70), (3, 5)]
DECAYS = [True, False, True, True]


def wave(shape, phase):
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float64).mul(0.37).add(phase).sin()
    return values.reshape(shape).float()


OPTIMIZERS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True),
    "adamw_8bit": lambda groups: bitsandbytes.optim.AdamW(groups, lr=1e-3, optim_bits=8),
    "adafactor": lambda groups: Adafactor(
        groups, lr=1e-3, scale_parameter=False, relative_step=False
    ),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-3, momentum=0.9),
}


def main():
    for name, make_optimizer in OPTIMIZERS.items():
        parameters = [torch.nn.Parameter(wave(s, 1.0 + i)) for i, s in enumerate(SHAPES)]
        groups = [
            {"params": [p for p, d in zip(parameters, DECAYS) if d], "weight_decay": 0.1},
            {"params": [p for p, d in zip(parameters, DECAYS) if not d], "weight_decay": 0.0},
        ]
        optimizer = make_optimizer(groups)
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)  # adds initial_lr
        for update in range(2):
            for parameter in parameters[:-1]:
                parameter.grad = wave(parameter.shape, update * 1.7) * 0.01
            optimizer.step()
        torch.save(optimizer.state_dict(), FOLDER / f"optimizer_{name}.pt")

    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    scaler.load_state_dict({**scaler.state_dict(), "scale": 32768.0, "_growth_tracker": 3})
    torch.save(scaler.state_dict(), FOLDER / "scaler.pt")


if __name__ == "__main__":
    main()
