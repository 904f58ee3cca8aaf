# SPDX-License-Identifier: MIT
"""Writes loss_goldens.json: losses and gradients of sentence-transformers 6.2's cross encoders for
random logits.

Usage: python tests/task/reranker/make_loss_goldens.py
"""

import json
import pathlib

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses

SAMPLES = 4


class Scores(CrossEncoder):
    """A cross encoder whose logits are given: texts are their indices."""

    num_labels = 1
    device = torch.device("cpu")

    def __init__(self, logits):
        torch.nn.Module.__init__(self)
        self.logits = logits.flatten()

    def preprocess(self, pairs, **_):
        return {"indices": torch.tensor([int(document) for _, document in pairs])}

    def forward(self, features):
        return {"scores": self.logits[features["indices"]]}


def case(name, documents, labels, **arguments):
    generator = torch.Generator().manual_seed(len(name) + documents)
    logits = torch.randn(SAMPLES, documents, generator=generator).round(decimals=3)
    logits.requires_grad_()
    built = dict(arguments)
    if "pos_weight" in built:
        built["pos_weight"] = torch.tensor(built["pos_weight"])
    if "weighting_scheme" in built:
        built["weighting_scheme"] = getattr(losses, built["weighting_scheme"])()
    loss = getattr(losses, name)(Scores(logits), **built)
    texts = [[str(row * documents + i) for i in range(documents)] for row in range(SAMPLES)]
    queries = ["q"] * SAMPLES
    if name in ("BinaryCrossEntropyLoss", "MSELoss"):
        flat = [text for row in texts for text in row]
        value = loss([["q"] * len(flat), flat], torch.tensor(labels).flatten())
    elif name == "MarginMSELoss":
        value = loss([queries, *map(list, zip(*texts, strict=True))], torch.tensor(labels))
    else:
        value = loss([queries, texts], [torch.tensor(row) for row in labels])
    value.backward()
    return {
        "loss_type": name,
        "loss_kwargs": arguments,
        "labels": labels,
        "logits": logits.tolist(),
        "loss": value.item(),
        "gradient": logits.grad.tolist(),
    }


def main():
    binary = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    grades = [[2.0, 0.0, 1.0, 0.0], [0.0, 3.0, 1.0, 1.0], [1.0, 0.5, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0]]
    cases = [
        case("BinaryCrossEntropyLoss", 1, [[1.0], [0.0], [0.3], [1.0]]),
        case("BinaryCrossEntropyLoss", 3, binary, pos_weight=2.5),
        case("MSELoss", 1, [[1.5], [0.0], [0.3], [1.0]]),
        case("MarginMSELoss", 4, grades),
        case("ListNetLoss", 4, grades),
        case("RankNetLoss", 4, grades),
        case("RankNetLoss", 3, binary, sigma=0.5),
        case("LambdaLoss", 4, grades),
        case("LambdaLoss", 3, binary, sigma=2.0),
        case("LambdaLoss", 4, grades, weighting_scheme="NDCGLoss2Scheme"),
        case("LambdaLoss", 4, grades, weighting_scheme="LambdaRankScheme"),
        case("LambdaLoss", 4, grades, weighting_scheme="NoWeightingScheme"),
    ]
    path = pathlib.Path(__file__).with_name("loss_goldens.json")
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
