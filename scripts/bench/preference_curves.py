#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the margins and accuracies of a finished run of task: dpo:

    finetune train configs/dpo.yaml && python3 scripts/bench/preference_curves.py runs/dpo docs/dpo.svg
"""

import argparse
import json
from pathlib import Path

import plots

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("run", type=Path)
parser.add_argument("picture", type=Path)
arguments = parser.parse_args()
log = json.loads((arguments.run / "trainer_state.json").read_text())["log_history"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 350, 220, 46, 44, 30


def panel(x0, name, label):
    """One picture: training as a line, evaluations as points."""
    train = [(row["step"], row[name]) for row in log if name in row]
    held_out = [(row["step"], row[f"eval_{name}"]) for row in log if f"eval_{name}" in row]
    values = [value for _, value in train + held_out]
    low, high = min(0.0, *values), max(1.0, *values)
    steps = max(step for step, _ in train + held_out)

    def at(step, value):
        x = x0 + LEFT + (WIDTH - LEFT - 20) * step / steps
        return x, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = [plots.text(x0 + LEFT, 32, label)]
    for value in (low, 0.5, high):
        x, y = at(0, value)
        parts.append(plots.line(x, y, x0 + WIDTH - 20, y, more=' stroke-width="0.4"'))
        parts.append(plots.text(x0 + 8, y + 4, f"{value + 0.0:.1f}".replace("-0.0", "0.0")))
    for step in (0, steps):
        parts.append(plots.text(at(step, low)[0] - 6, HEIGHT - 10, str(step)))
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in train))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{plots.OURS}" stroke-width="1.5"/>')
    for point in held_out:
        x, y = at(*point)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{plots.THEIRS}"/>')
    return parts


parts = [plots.text(8, 14, "line: training, points: 100 held-out pairs; over updates")]
parts += panel(0, "rewards/margins", "rewards/margins")
parts += panel(WIDTH, "rewards/accuracies", "rewards/accuracies")
title = "Margins and accuracies of the rewards over the updates of a DPO run"
arguments.picture.write_text(plots.picture(2 * WIDTH, HEIGHT, title, parts))
