#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes plateau.pt and greedy.pt, the scheduler.pt of torch's ReduceLROnPlateau and transformers'
GreedyLR after some evaluations, and schedulers.json: the evaluations and the rates after more of
them."""
import json
import pathlib

import torch
from transformers.optimization import GreedyLR

FOLDER = pathlib.Path(__file__).parent
METRICS = [3.0, 2.0, 2.5, 2.25, 1.5, 1.75, 1.875, 1.8125]
MORE = [1.25, 1.5, 1.625, 1.0, 0.875, 0.75, 0.5, 0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0]
KWARGS = {
    "plateau": {"patience": 1, "factor": 0.5, "cooldown": 1},
    "greedy": {"patience": 0, "factor": 0.5, "min_lr": 1e-5, "warmup": 1, "smooth": True, "window_size": 3},
}


def main():
    result = {"metrics": METRICS, "more": MORE}
    for name, make in (("plateau", torch.optim.lr_scheduler.ReduceLROnPlateau), ("greedy", GreedyLR)):
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(2)]
        optimizer = torch.optim.AdamW(groups, lr=0.001)
        scheduler = make(optimizer, **KWARGS[name])
        for metric in METRICS:
            scheduler.step(metric)
        torch.save(scheduler.state_dict(), FOLDER / f"{name}.pt")
        rates = [optimizer.param_groups[0]["lr"]]
        for metric in MORE:
            scheduler.step(metric)
            rates.append(optimizer.param_groups[0]["lr"])
        result[name] = {"kwargs": KWARGS[name], "rates": rates}
    (FOLDER / "schedulers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
