#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""QLoRA on larger models: peak memory, the time from the start of a second session to its first update, and how
fast a base is quantised.

Shapes of 0.5 and 1.2 billion weights (random, bfloat16), one row of 1,024 tokens an update, r 16, recomputation.
The first session quantises the base with all cores; the second finds it in the cache. Prints a Markdown table;
exits with 1 if a limit is exceeded. Needs numpy, 4 GB of disk and 3 GB of memory.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
# Qwen2.5-0.5B's and Llama-3.2-1B's shapes, and the highest peaks in GiB.
SHAPES = {
    "0.5B": (dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864,
                  num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2), 1.0),
    "1.2B": (dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192,
                  num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8), 1.7),
}  # fmt: skip
FIRST_UPDATE, QUANTISED = 3.0, 100.0  # seconds; million values/s of all cores


def write_model(folder, shape):
    """A folder as save_pretrained writes it; values as bfloat16 of a normal distribution."""
    import numpy as np

    folder.mkdir()
    config = {
        "max_position_embeddings": 4096, "tie_word_embeddings": True, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "hidden_act": "silu", "initializer_range": 0.02, "bos_token_id": 0, "eos_token_id": 2, **shape,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    hidden, inner, kv = shape["hidden_size"], shape["intermediate_size"], shape["num_key_value_heads"]
    kv *= hidden // shape["num_attention_heads"]
    tensors = {"model.embed_tokens.weight": (shape["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(shape["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        for name, size in (("q", hidden), ("k", kv), ("v", kv)):
            tensors[f"{start}self_attn.{name}_proj.weight"] = (size, hidden)
            if shape["model_type"] == "qwen2":
                tensors[f"{start}self_attn.{name}_proj.bias"] = (size,)
        tensors[f"{start}self_attn.o_proj.weight"] = (hidden, hidden)
        tensors[f"{start}mlp.gate_proj.weight"] = tensors[f"{start}mlp.up_proj.weight"] = (inner, hidden)
        tensors[f"{start}mlp.down_proj.weight"] = (hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{start}{name}.weight"] = (hidden,)
    header, offset = {}, 0
    for name, sizes in tensors.items():
        size = 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for sizes in tensors.values():
            values = random.standard_normal(int(np.prod(sizes)), dtype=np.float32) * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    linear = sum(int(np.prod(sizes)) for name, sizes in tensors.items() if "proj.weight" in name)
    return linear


def train(binary, folder, model, environment):
    """Trains one update. Returns the seconds at which lines of the log begin, and the peak in MiB."""
    path = folder / "run.json"
    path.write_text(json.dumps({
        "task": "clm", "model_name_or_path": str(model), "tokenizer_name": str(FIXTURES / "tokenizers/lighthouse"),
        "train_file": str(FIXTURES / "text/lighthouse.txt"), "validation_split_percentage": 0, "max_seq_length": 1024,
        "per_device_train_batch_size": 1, "max_steps": 1, "learning_rate": 2e-4, "save_strategy": "no",
        "report_to": "none", "output_dir": str(folder / "out"), "cache_dir": str(folder / "cache"),
        "use_peft": True, "lora_r": 16, "load_in_4bit": True, "gradient_checkpointing": True,
    }))  # fmt: skip
    start, at, lines = time.monotonic(), {}, []
    process = subprocess.Popen([binary, "train", path, "--restart"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, **environment})  # fmt: skip
    for line in process.stderr:
        lines.append(line)
        for words in ("base: ", "training 1 steps", "  starts "):
            if line.startswith(words):
                at[words.split()[0]] = time.monotonic() - start
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0 or "starts" not in at:
        sys.exit("".join(lines[-20:]))
    return at, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        print(write_model(Path(options.make[0]), SHAPES[options.make[1]][0]))
        return 0
    failed = False
    print("| shape | peak, MiB | with one thread | seconds to the first update, first session | second session | "
          "quantised, M values/s |\n|---|---|---|---|---|---|")  # fmt: skip
    for name, (_, most) in SHAPES.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            # In another process: a peak of a child begins with its parent's.
            made = subprocess.run([sys.executable, __file__, "--make", folder / "model", name], check=True,
                                  capture_output=True, text=True)  # fmt: skip
            first, _ = train(options.binary, folder, folder / "model", {})
            second, peak = train(options.binary, folder, folder / "model", {})
            _, alone = train(options.binary, folder, folder / "model", {"OMP_NUM_THREADS": "1"})
            # Both load the quantised base, after they have compared its checksums.
            quantising = (first["training"] - first["base:"]) - (second["training"] - second["base:"])
            rate = int(made.stdout) / quantising / 1e6
            print(f"| {name} | {peak:,.0f} | {alone:,.0f} | {first['starts']:.1f} | {second['starts']:.1f} | {rate:.0f} |",
                  flush=True)  # fmt: skip
            failed |= max(peak, alone) > most * 1024 or rate < QUANTISED or second["starts"] > FIRST_UPDATE
    print(f"\nLimits: peaks {SHAPES['0.5B'][1]} and {SHAPES['1.2B'][1]} GiB, {FIRST_UPDATE} s, {QUANTISED:.0f} M values/s.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
