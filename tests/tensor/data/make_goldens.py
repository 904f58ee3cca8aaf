#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the files of this folder with Python's torch and safetensors (both pinned in
tests/requirements.txt): what the readers must read and the writers must equal."""
import pathlib
from collections import OrderedDict

import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).parent


def values(*shape, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float64) * 0.5 - 1).reshape(shape).to(dtype)


def odd_weights():
    """What a state dictionary may hold beside plain float tensors."""
    shared = values(6)
    marked = torch.nn.Parameter(values(5))
    marked.of_transformers = True
    return OrderedDict({
        "parameter": torch.nn.Parameter(values(2, 3)),
        "marked": marked,
        "trained": values(2, 2).requires_grad_(),
        "half": values(3, dtype=torch.float16),
        "brain": values(3, dtype=torch.bfloat16),
        "double": values(2, dtype=torch.float64),
        "long": torch.arange(4).expand((1, -1)),
        "flags": torch.tensor([True, False]),
        "transposed": values(2, 3).t(),
        "slice": shared[2:5],
        "strided": shared[::2],
        "whole": shared,
        "repeated": torch.tensor([2.5]).expand(3),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
    })


def main():
    parameters = [torch.nn.Parameter(values(3, 2)), torch.nn.Parameter(values(4))]
    optimizer = torch.optim.AdamW(
        [{"params": parameters[:1], "weight_decay": 0.01}, {"params": parameters[1:], "weight_decay": 0.0}],
        lr=1e-3,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    scheduler.step()
    torch.save(optimizer.state_dict(), FOLDER / "optimizer.pt")
    torch.save(scheduler.state_dict(), FOLDER / "scheduler.pt")

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(values(*parameter.shape))
    torch.save(model.state_dict(), FOLDER / "pytorch_model.bin")
    torch.save([1, 2], FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)

    # In both formats, and the same tensors as safetensors.
    weights = odd_weights()
    torch.save(weights, FOLDER / "odd_model.bin")
    torch.save({"state_dict": weights, "epoch": 3}, FOLDER / "odd_model_legacy.bin",
               _use_new_zipfile_serialization=False)
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in weights.items()},
              FOLDER / "odd_model.safetensors", metadata={"format": "pt"})

    tensors = {
        "b.weight": values(2, 3),
        "a.weight": values(2, 2),
        "half": values(3, dtype=torch.float16),
        "brain": values(3, dtype=torch.bfloat16),
        "double": values(2, dtype=torch.float64),
        "long": torch.tensor([-1, 2**40]),
        "int": torch.tensor([-7, 7], dtype=torch.int32),
        "short": torch.tensor([-300], dtype=torch.int16),
        "char": torch.tensor([-3, 3], dtype=torch.int8),
        "byte": torch.tensor([200], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
    }
    save_file(tensors, FOLDER / "all_types.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
