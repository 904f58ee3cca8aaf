#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/task/temperature_goldens.json: logits with labels, and the temperatures that scikit-learn
and a search find. Made with scikit-learn 1.9.1, numpy 2.4.6, SciPy 1.17.1."""

import json
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from sklearn.calibration import _TemperatureScaling

OUTPUT = Path(__file__).resolve().parent / "temperature_goldens.json"


def case(rng, samples, options, scale):
    """Labels are drawn from the softmax of the logits, which are then scaled."""
    logits = rng.normal(size=(samples, options)) * 2
    p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    labels = np.array([rng.choice(options, p=row) for row in p])
    logits = np.round(logits * scale, 3)
    return {"logits": logits.tolist(), "labels": labels.tolist(),
            "temperature": float(1 / _TemperatureScaling().fit(logits, labels).beta_)}  # fmt: skip


def soft_case(rng, samples):
    """Probabilities as targets, options of different numbers: a search over temperatures."""
    rows = []
    for _ in range(samples):
        options = int(rng.integers(1, 6))
        logits = np.round(rng.normal(size=options) * 3, 3)
        p = np.exp(logits / 1.7 - logsumexp(logits / 1.7))
        target = np.round(0.8 * p + 0.2 * rng.dirichlet(np.ones(options)), 3)
        rows.append((logits, target / target.sum()))

    def loss(t):
        return sum(logsumexp(z / t) * p.sum() - (p * z).sum() / t for z, p in rows)

    low, high = 0.5, 5.0
    for _ in range(6):
        grid = np.linspace(low, high, 101)
        best = grid[np.argmin([loss(t) for t in grid])]
        width = (high - low) / 50
        low, high = max(0.5, best - width), min(5.0, best + width)
    return {"rows": [{"logits": z.tolist(), "target": p.tolist()} for z, p in rows], "temperature": float(best)}


def main():
    rng = np.random.default_rng(7)
    cases = [case(rng, *shape) for shape in ((40, 3, 1.7), (25, 2, 0.9), (60, 7, 3.0), (30, 4, 1.0))]
    goldens = {"cases": cases, "soft": soft_case(rng, 50)}
    OUTPUT.write_text(json.dumps(goldens, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
