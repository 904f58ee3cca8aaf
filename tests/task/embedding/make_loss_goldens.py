# SPDX-License-Identifier: MIT
"""Writes loss_goldens.json: losses and gradients of sentence-transformers 6.2 for random vectors.

Usage: python tests/task/embedding/make_loss_goldens.py
"""

import json
import pathlib

import torch
from sentence_transformers.sentence_transformer import losses

SAMPLES, SIZE = 5, 7


def case(name, texts, labels=None, dims=(), **arguments):
    generator = torch.Generator().manual_seed(len(name) + texts)
    vectors = torch.randn(SAMPLES, texts, SIZE, generator=generator).round(decimals=3)
    vectors.requires_grad_()
    values = None if labels is None else torch.tensor(labels)
    built = dict(arguments)
    if "distance_metric" in built:
        metric = losses.TripletDistanceMetric
        built["distance_metric"] = getattr(metric, arguments["distance_metric"].upper())
    loss = getattr(losses, name)(None, **built)

    def of(rows):
        return loss.compute_loss_from_embeddings(list(rows.unbind(1)), values)

    value = of(vectors) if not dims else 0
    for size in dims:
        value = value + of(torch.nn.functional.normalize(vectors[..., :size], dim=-1))
    value.backward()
    return {
        "loss_type": name,
        "loss_kwargs": arguments,
        "matryoshka_dims": list(dims),
        "labels": labels,
        "vectors": vectors.tolist(),
        "loss": value.item(),
        "gradient": vectors.grad.tolist(),
    }


def main():
    scores = [0.1, 0.9, 0.5, 0.5, 0.3]
    binary = [1.0, 0.0, 1.0, 0.0, 0.0]
    cases = [
        case("MultipleNegativesRankingLoss", 2),
        case("MultipleNegativesRankingLoss", 4, scale=5.0),
        case("MultipleNegativesRankingLoss", 2, dims=(7, 4, 2)),
        case("MultipleNegativesSymmetricRankingLoss", 2),
        case("MultipleNegativesSymmetricRankingLoss", 3),
        case("CoSENTLoss", 2, scores),
        case("AnglELoss", 2, scores),
        case("CosineSimilarityLoss", 2, scores),
        case("ContrastiveLoss", 2, binary),
        case("OnlineContrastiveLoss", 2, binary, margin=0.9),
        case("OnlineContrastiveLoss", 2, [1.0] * SAMPLES),
        case("TripletLoss", 3),
        case("TripletLoss", 3, distance_metric="cosine", triplet_margin=0.3),
        case("TripletLoss", 3, distance_metric="manhattan"),
        case("MarginMSELoss", 3, scores),
    ]
    path = pathlib.Path(__file__).with_name("loss_goldens.json")
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
