# SPDX-License-Identifier: MIT
"""Writes schedules.json: the learning rates of transformers' get_scheduler.

Needs torch and transformers 5.23. Usage: make_schedules.py > schedules.json
"""

import json
import math
import sys
import warnings

import torch
from transformers.optimization import get_scheduler

warnings.simplefilter("ignore")

# type, learning rate, warm-up steps, total steps, kwargs
CURVES = [
    ("linear", 5e-5, 0, 40, {}),
    ("linear", 1e-3, 7, 40, {}),
    ("linear", 1e-3, 40, 40, {}),
    ("linear", 1e-3, 60, 40, {}),
    ("linear", 1e-3, 1, 1, {}),
    ("linear", 6e-4, 6, 2001, {}),
    ("cosine", 5e-5, 0, 40, {}),
    ("cosine", 1e-3, 7, 40, {"num_cycles": 1.5}),
    ("cosine", 1e-3, 100, 2000, {}),
    ("cosine_with_restarts", 1e-3, 0, 40, {}),
    ("cosine_with_restarts", 1e-3, 4, 40, {"num_cycles": 3}),
    ("polynomial", 1e-3, 0, 40, {}),
    ("polynomial", 1e-3, 5, 40, {"power": 2.5, "lr_end": 1e-5}),
    ("polynomial", 1e-3, 5, 40, {"power": 0, "lr_end": 0}),
    ("constant", 3e-4, 9, 40, {}),
    ("constant_with_warmup", 3e-4, 0, 40, {}),
    ("constant_with_warmup", 3e-4, 9, 40, {}),
    ("inverse_sqrt", 3e-4, 0, 40, {}),
    ("inverse_sqrt", 3e-4, 9, 40, {}),
    ("inverse_sqrt", 3e-4, 9, 40, {"timescale": 50}),
    ("cosine_with_min_lr", 1e-3, 0, 40, {"min_lr": 1e-4}),
    ("cosine_with_min_lr", 1e-3, 8, 40, {"min_lr_rate": 0.05, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", 1e-3, 0, 40, {"min_lr": 1e-4}),
    ("cosine_warmup_with_min_lr", 1e-3, 8, 40, {"min_lr_rate": 0.05}),
    ("cosine_warmup_with_min_lr", 1e-3, 8, 40, {"min_lr": 0, "warmup_lr_rate": 0.2}),
    ("cosine_warmup_with_min_lr", 1e-3, 1, 40, {"min_lr_rate": 0, "warmup_lr_rate": 0.2}),
    ("warmup_stable_decay", 1e-3, 0, 40, {"num_decay_steps": 10}),
    ("warmup_stable_decay", 1e-3, 8, 40, {"num_decay_steps": 10, "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 1e-3, 8, 40, {"num_decay_steps": 10, "num_stable_steps": 5}),
    ("warmup_stable_decay", 1e-3, 8, 40, {"num_decay_steps": 36}),
    ("warmup_stable_decay", 1e-3, 8, 40, {"num_decay_steps": 0}),
    (
        "warmup_stable_decay",
        1e-3,
        8,
        40,
        {"num_decay_steps": 12, "warmup_type": "cosine", "decay_type": "linear"},
    ),
    (
        "warmup_stable_decay",
        1e-3,
        8,
        40,
        {
            "num_decay_steps": 12,
            "warmup_type": "1-sqrt",
            "decay_type": "1-sqrt",
            "min_lr_ratio": 0.25,
        },
    ),
    (
        "warmup_stable_decay",
        1e-3,
        0,
        40,
        {"num_decay_steps": 30, "num_cycles": 1.5, "min_lr_ratio": 0.01},
    ),
]

# type, learning rate, kwargs
FOLLOWERS = [
    ("reduce_lr_on_plateau", 1e-3, {}),
    ("reduce_lr_on_plateau", 1e-3, {"patience": 1, "factor": 0.5, "min_lr": 1e-4}),
    ("reduce_lr_on_plateau", 1e-3, {"patience": 0, "cooldown": 3, "factor": 0.7}),
    ("reduce_lr_on_plateau", 1e-3, {"mode": "max", "patience": 2, "threshold_mode": "abs"}),
    ("reduce_lr_on_plateau", 1e-3, {"patience": 0, "eps": 1e-4, "threshold": 0.05}),
    ("greedy", 1e-2, {}),
    ("greedy", 5e-5, {"patience": 1}),
    ("greedy", 1e-2, {"patience": 1, "cooldown": 2, "warmup": 1, "factor": 0.8}),
    ("greedy", 1e-2, {"patience": 0, "factor": 0.5, "reset_start": 3, "max_lr": 0.05}),
    ("greedy", 1e-2, {"patience": 1, "smooth": True, "window_size": 4, "min_lr": 1e-5}),
    (
        "greedy",
        1e-2,
        {"patience": 0, "smooth": True, "window_size": 3, "factor": 0.4, "reset_start": 2},
    ),
    ("greedy", 1e-2, {"patience": 1, "mode": "max", "threshold_mode": "rel", "threshold": 0.01}),
]


def optimizer(learning_rate):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=learning_rate)


def positions(total):
    if total <= 100:
        return list(range(total + 12))
    return list(range(0, 8)) + list(range(8, total - 3, 97)) + list(range(total - 3, total + 9))


def curve(kind, learning_rate, warmup, total, kwargs):
    schedule = get_scheduler(kind, optimizer(learning_rate), warmup, total, dict(kwargs))
    factor = schedule.lr_lambdas[0]
    updates = positions(total)
    return {
        "type": kind,
        "learning_rate": learning_rate,
        "warmup_steps": warmup,
        "max_steps": total,
        "kwargs": kwargs,
        "updates": updates,
        "rates": [learning_rate * factor(step) for step in updates],
    }


def metrics():
    """Falls, rests, falls a little, rises: every branch of both schedules is met."""
    values = [4.0 * math.exp(-i / 6) + 0.2 * math.sin(i * 1.7) for i in range(24)]
    values += [0.5] * 30
    values += [0.5 - 0.003 * i for i in range(14)]
    values += [float("nan"), 0.7, 0.3, 0.9, 0.2, 0.1, 0.05]
    values += [0.05 + 0.01 * i for i in range(12)]
    return values


def follower(kind, learning_rate, kwargs):
    group = optimizer(learning_rate)
    schedule = get_scheduler(kind, group, 5, 40, dict(kwargs))
    rates = []
    for metric in [v for v in metrics() if not (kwargs.get("smooth") and v != v)]:
        schedule.step(metric)
        rates.append(group.param_groups[0]["lr"])
    return {"type": kind, "learning_rate": learning_rate, "kwargs": kwargs, "rates": rates}


def main():
    result = {
        "metrics": [None if v != v else v for v in metrics()],  # null: NaN; smoothing leaves it out
        "curves": [curve(*case) for case in CURVES],
        "followers": [follower(*case) for case in FOLLOWERS],
    }
    text = json.dumps(result, separators=(",", ":"))
    sys.stdout.write(text.replace('{"type"', '\n{"type"') + "\n")


if __name__ == "__main__":
    main()
