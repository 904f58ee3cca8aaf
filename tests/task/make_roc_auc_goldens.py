#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/task/roc_auc_goldens.json: scikit-learn's roc_auc_score on random logits with ties.
Binary cases use the probability of class 1, cases of several classes the softmax with
multi_class="ovr" and average="macro", cases of several labels the logits with average="macro".
Made with scikit-learn 1.7 or newer."""

import json
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

OUTPUT = Path(__file__).resolve().parent / "roc_auc_goldens.json"


def softmax(logits):
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def class_case(rng, samples, classes):
    """Logits in quarters, so that many are equal; every class occurs."""
    logits = rng.integers(-6, 7, size=(samples, classes)) / 4
    truth = rng.permutation(np.arange(samples) % classes)
    scores = softmax(logits)
    if classes == 2:
        value = roc_auc_score(truth, scores[:, 1])
    else:
        value = roc_auc_score(truth, scores, multi_class="ovr", average="macro")
    return {"logits": logits.tolist(), "classes": truth.tolist(), "expected": float(value)}


def label_case(rng, samples, labels):
    logits = rng.integers(-6, 7, size=(samples, labels)) / 4
    values = (rng.random((samples, labels)) < 0.4).astype(int)
    values[0], values[1] = 0, 1  # both occur in each column
    value = roc_auc_score(values, logits, average="macro")
    return {"logits": logits.tolist(), "values": values.tolist(), "expected": float(value)}


def main():
    rng = np.random.default_rng(7)
    goldens = {
        "classes": [
            class_case(rng, samples, classes)
            for samples, classes in ((2, 2), (16, 2), (101, 2), (12, 3), (40, 5))
        ],
        "labels": [label_case(rng, samples, labels) for samples, labels in ((9, 1), (30, 4))],
    }
    OUTPUT.write_text(json.dumps(goldens, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
