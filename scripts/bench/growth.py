# SPDX-License-Identifier: MIT
"""How cost grows: batch, length, layers, vocabulary, corpus and checkpoint size, each doubled four times.

CPU seconds of finetune alone, of the difference between a run of many and a run of few updates, or of a whole process
less its start. A figure with slope 1 doubles when its size doubles.
"""

import json
import math
import statistics
import sys

import plots

BASE = dict(batch=4, length=64, layers=2, vocabulary=2000)
DOUBLINGS = 4


def shape_of(sizes, hidden=256):
    return dict(num_hidden_layers=sizes["layers"], num_attention_heads=4, hidden_size=hidden,
                intermediate_size=4 * hidden, max_position_embeddings=2050, type_vocab_size=1,
                vocab_size=sizes["vocabulary"])  # fmt: skip


def keys_of(bench, sizes, **more):
    return {
        "model_type": "roberta",
        "config_overrides": shape_of(sizes),
        "tokenizer_name": bench.tokenizer(sizes["vocabulary"]).parent,
        "train_file": bench.data("esperanto.txt"),
        "validation_split_percentage": 0,
        "max_seq_length": sizes["length"],
        "per_device_train_batch_size": sizes["batch"],
        "save_strategy": "no",
        "eval_strategy": "no",
        "output_dir": bench.folder / "grown",
        "cache_dir": bench.folder / "cache",
        **more,
    }


def update(bench, sizes):
    few, many = (1, 2) if bench.args.quick else (1, 5)
    keys = keys_of(bench, sizes)
    bench.ours("train", "grown", {**keys, "max_steps": 1})  # tokenised data are kept from here on
    seconds = [bench.ours("train", "grown", {**keys, "max_steps": steps})[1] for steps in (few, many)]
    return (seconds[1] - seconds[0]) / (many - few)


def corpus(bench, doublings):
    """CPU seconds of tokenising a corpus and writing it, without loading libtorch."""
    text = bench.folder / "grown.txt"
    content = bench.data("esperanto.txt").read_bytes()
    text.write_bytes(content * 2**doublings)
    keys = keys_of(bench, BASE, train_file=text, cache_dir=bench.folder / f"cache-{doublings}")
    base = bench.run([bench.args.binary, "--version"])[1]
    return len(content) * 2**doublings / 1e6, bench.ours("prepare", "grown", keys)[1] - base


def checkpoint(bench, doublings):
    """CPU seconds of a run that saves once, less those of the same run without a save, by the checkpoint's size."""
    sizes = dict(BASE, vocabulary=BASE["vocabulary"] * 2 ** (doublings + 2))
    keys = keys_of(bench, sizes, max_steps=1)
    saving = {**keys, "save_strategy": "steps", "save_steps": 1}
    # A single difference of two processes is noise for the small ones.
    turns = [[bench.ours("train", "grown", k)[1] for k in (keys, saving)] for _ in range(5)]
    without, saved = (statistics.median(column) for column in zip(*turns))
    files = (bench.folder / "grown" / "checkpoint-1").iterdir()
    return sum(file.stat().st_size for file in files) / 1e6, saved - without


def slope(points):
    """Of the logarithms, by least squares."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-6)) for _, y in points]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)


WHY = {
    "batch": "above 1 is not expected: an update's fixed part (AdamW, one launch of each operation) makes it fall below 1",
    "length": "attention multiplies each token with all others, so the slope rises above 1 with the length",
    "layers": "the embedding and the head are a fixed part, so the slope is below 1",
    "vocabulary": "only the head, the embedding's gradient and AdamW grow, so the slope is below 1",
    "corpus": "each byte is tokenised and written once; repeated words come from the cache",
    "checkpoint": "each byte is hashed and written once; most is the kernel's time for writing, 0.5 ms a MB below 100 MB "
    "and up to 2 ms above",
}


UNITS = {"corpus": " MB", "checkpoint": " MB"}


def draw(curves, path):
    plots.curves(curves, {name: slope(points) for name, points in curves.items()}, UNITS, path)


def measure(bench):
    curves = {}
    for name, first in BASE.items():
        curves[name] = []
        for doublings in range(DOUBLINGS + 1):
            sizes = dict(BASE, **{name: first * 2**doublings})
            curves[name].append((sizes[name], update(bench, sizes)))
            print(f"growth, {name} {sizes[name]}: {curves[name][-1][1]:.4f} CPU s", file=sys.stderr)
    curves["corpus"] = [corpus(bench, i) for i in range(DOUBLINGS + 1)]
    curves["checkpoint"] = [checkpoint(bench, i) for i in range(DOUBLINGS + 1)]
    draw(curves, bench.args.output / "growth.svg")
    lines = ["| doubled | sizes | CPU s | slope | |", "|---|---|---|---|---|"]
    for name, points in curves.items():
        sizes = ", ".join(f"{x:,.1f}".removesuffix(".0") for x, _ in points)
        seconds = ", ".join(f"{y:.3g}" for _, y in points)
        lines.append(f"| {name} | {sizes}{UNITS.get(name, '')} | {seconds} | {slope(points):.2f} | {WHY[name]} |")
    return {"title": "growth", "curves": json.loads(json.dumps(curves)), "table": "\n".join(lines)}
