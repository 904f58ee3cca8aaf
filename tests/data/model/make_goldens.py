#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the numbers that tests/model compares with: tests/data/model, a folder for each family and
head. Every parameter is random, biases and norms too: a reader that mixed two up would be found out.

    config.json, model.safetensors   as save_pretrained() writes them
    expected.safetensors             input_ids, attention_mask, token_type_ids, logits
    expected.json                    parameters in the optimizer's order: [name, decays, norm of the
                                     gradient of sum(logits * weight) or null where there is none]

activations.json holds every activation without weights of its own at a row of numbers, defaults.json
the configuration of each family as its class makes it.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

OUTPUT = Path(__file__).resolve().parent
FAMILIES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "big_bird": "BigBird"}
HEADS = {
    "masked_lm": "MaskedLM",
    "sequence_classification": "SequenceClassification",
    "multiple_choice": "MultipleChoice",
    "token_classification": "TokenClassification",
    "question_answering": "QuestionAnswering",
}
SIZES = dict(
    vocab_size=32,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
    initializer_range=0.3,
)
# What only some configurations say.
VARIANTS = {
    "bert-masked_lm-untied": dict(tie_word_embeddings=False, hidden_act="quick_gelu"),
    "roberta-masked_lm-untied": dict(tie_word_embeddings=False, hidden_act="relu"),
    "big_bird-masked_lm-rescaled": dict(rescale_embeddings=True, use_bias=False),
}
OWN = {"big_bird": dict(attention_type="original_full", sep_token_id=3)}
LABELS = ["O", "B-舞", "I-舞"]


def make_model(name):
    import torch
    import transformers

    family, head = name.split("-untied")[0].split("-rescaled")[0].rsplit("-", 1)
    prefix = FAMILIES[family]
    settings = {**SIZES, **OWN.get(family, {}), **VARIANTS.get(name, {})}
    if head in ("sequence_classification", "token_classification"):
        settings["id2label"] = dict(enumerate(LABELS))
        settings["label2id"] = {label: i for i, label in enumerate(LABELS)}
    config = getattr(transformers, f"{prefix}Config")(**settings)
    model = getattr(transformers, f"{prefix}For{HEADS[head]}")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def make_batch(model, head):
    """Four rows of 4 to 12 tokens: <question> 3 <context> 3 <padding>."""
    import torch

    padding = model.config.pad_token_id
    ids, types = torch.full((4, 12), padding), torch.zeros((4, 12), dtype=torch.long)
    for row, (question, length) in enumerate([(4, 12), (2, 7), (5, 10), (1, 4)]):
        ids[row, :length] = torch.randint(4, 32, (length,))
        ids[row, question] = ids[row, length - 1] = 3
        types[row, question + 1 : length] = 1
    batch = {"input_ids": ids, "attention_mask": ids.ne(padding).long(), "token_type_ids": types}
    # big_bird makes its own types there, and its tokenizer gives none.
    if model.config.model_type == "big_bird" and head == "question_answering":
        del batch["token_type_ids"]
    return batch


def run(model, batch):
    import torch

    name = type(model).__name__
    if name.endswith("MultipleChoice"):  # the rows of a batch as two choices each
        logits = model(**{k: v.view(2, 2, -1) for k, v in batch.items()}).logits.view(-1, 1)
    elif name.endswith("QuestionAnswering"):
        output = model(**batch)
        logits = torch.stack([output.start_logits, output.end_logits], dim=-1)
    else:
        logits = model(**batch).logits
    weight = torch.arange(logits.numel()).remainder(7).sub(3).view(logits.shape) / 3
    (logits * weight).sum().backward()
    return logits.detach()


def describe_parameters(model):
    from transformers import Trainer

    decays = set(Trainer.get_decay_parameter_names(None, model))
    norm = lambda p: None if p.grad is None else float(f"{p.grad.norm():.7g}")
    return [[n, n in decays, norm(p)] for n, p in model.named_parameters()]


def make_activations(path):
    import torch
    from transformers.activations import ACT2CLS, ACT2FN

    x = torch.arange(-48, 49) / 8
    values = {"x": x.tolist()}
    for name in sorted(set(ACT2CLS) - {"prelu", "xielu"}):
        values[name] = [float(f"{y:.7g}") for y in ACT2FN[name](x).tolist()]
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in values.items())
    path.write_text(f"{{\n{rows}\n}}\n")


def make_defaults(path):
    import transformers

    defaults = {}
    for family, prefix in FAMILIES.items():
        config = getattr(transformers, f"{prefix}Config")()
        defaults[family] = json.loads(config.to_json_string())
        del defaults[family]["transformers_version"]
    path.write_text(json.dumps(defaults, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output

    import torch
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    make_activations(output / "activations.json")
    make_defaults(output / "defaults.json")
    names = [f"{family}-{head}" for family in FAMILIES for head in HEADS] + list(VARIANTS)
    for number, name in enumerate(names):
        torch.manual_seed(number)
        folder = output / name
        if folder.exists():
            shutil.rmtree(folder)
        model = make_model(name)
        batch = make_batch(model, name.rsplit("-", 1)[1])
        tensors = {**batch, "logits": run(model, batch)}
        model.save_pretrained(folder)
        save_file(tensors, folder / "expected.safetensors", metadata={"format": "pt"})
        rows = ",\n".join(f" {json.dumps(row)}" for row in describe_parameters(model))
        (folder / "expected.json").write_text(f"[\n{rows}\n]\n")
    size = sum(f.stat().st_size for f in output.rglob("*") if f.is_file())
    print(f"{output}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
