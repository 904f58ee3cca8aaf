# SPDX-License-Identifier: MIT
"""Writes loss_goldens.json: losses and gradients of sentence-transformers 6.2 for random vectors.

Usage: python tests/task/embedding/make_loss_goldens.py
"""

import json
import pathlib

import torch
from sentence_transformers.sentence_transformer import losses

SAMPLES, SIZE = 5, 7
ALL_DIRECTIONS = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")


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


def guided_case(texts, temperature=0.01, **arguments):
    """GISTEmbedLoss without models: their vectors are given."""
    from sentence_transformers.sentence_transformer.losses import gist_embed

    generator = torch.Generator().manual_seed(texts)
    vectors = torch.randn(SAMPLES, texts, SIZE, generator=generator).round(decimals=3)
    vectors.requires_grad_()
    guide = torch.randn(SAMPLES, texts, SIZE - 2, generator=generator).round(decimals=3)
    guide[:, 1] += guide[:, 0]  # a positive is more similar than most texts
    loss = gist_embed.GISTEmbedLoss.__new__(gist_embed.GISTEmbedLoss)
    torch.nn.Module.__init__(loss)
    defaults = {
        "margin_strategy": "absolute",
        "margin": 0.0,
        "contrast_anchors": True,
        "contrast_positives": True,
    }
    for name, value in {**defaults, **arguments, "temperature": temperature}.items():
        setattr(loss, name, value)
    loss.model, loss.guide = "model", "guide"
    loss.must_retokenize = loss.gather_across_devices = False
    loss.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
    loss.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    rows = {"model": vectors, "guide": guide}
    gist_embed.embed_columns = lambda model, features: list(rows[model].unbind(1))
    value = loss([{}] * texts, None)
    value.backward()
    return {
        "loss_type": "GISTEmbedLoss",
        "loss_kwargs": {"guide": "a", "temperature": temperature, **arguments},
        "matryoshka_dims": [],
        "labels": guide.tolist(),
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
        case("MultipleNegativesRankingLoss", 3, directions=[*ALL_DIRECTIONS]),
        case("MultipleNegativesRankingLoss", 2, directions=["query_to_doc", "doc_to_query"],
             partition_mode="per_direction", scale=5.0),
        case("MultipleNegativesRankingLoss", 4, directions=["query_to_doc", "doc_to_doc"]),
        case("MultipleNegativesRankingLoss", 3, hardness_mode="in_batch_negatives", hardness_strength=9.0, scale=5.0),
        case("MultipleNegativesRankingLoss", 4, hardness_mode="hard_negatives", hardness_strength=9.0, scale=5.0),
        case("MultipleNegativesRankingLoss", 3, hardness_mode="all_negatives", hardness_strength=9.0, scale=5.0),
        guided_case(2),
        guided_case(3, temperature=0.1, margin=0.1),
        guided_case(2, temperature=0.2, margin=0.2, margin_strategy="relative", contrast_anchors=False),
        guided_case(3, temperature=0.05, contrast_positives=False),
    ]
    path = pathlib.Path(__file__).with_name("loss_goldens.json")
    path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
