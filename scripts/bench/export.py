#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What exports cost: CPU seconds and peak memory of `finetune export`, with PEFT's merge and the gguf package's
writer in the same run.

A Llama of 1.1 billion random weights in bfloat16 (TinyLlama's shape; --layers 4 for a quick run) with an adapter of
rank 16 on all linear layers, one thread. Needs the packages of tests/requirements.txt, 12 GB of memory and 20 GB of
disk. Prints a Markdown table; exits with 1 if a limit is exceeded.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adapter import cost

ROOT = Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizers" / "causal"
MOST_MIB = 300  # the adapter's comes to it
# Of the peer's CPU seconds.
LIMITS = {"merged bf16": 0.5, "GGUF f16": 0.3}


def make(folder, layers):
    import shutil

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    base, adapter = folder / "base", folder / "adapter"
    config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers,
                         num_attention_heads=32, num_key_value_heads=4, tie_word_embeddings=False)  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config)
    model.save_pretrained(base)
    for file in TOKENIZER.iterdir():
        shutil.copy(file, base)
    model.name_or_path = str(base)
    get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).save_pretrained(adapter)


def peer(kind, folder):
    """Prints CPU seconds and the peak, without the start of Python and its packages."""
    import torch

    torch.set_num_threads(1)
    if kind == "merged bf16":
        from peft import AutoPeftModelForCausalLM

        begin = time.process_time()
        model = AutoPeftModelForCausalLM.from_pretrained(folder / "adapter", dtype=torch.bfloat16)
        model.merge_and_unload().save_pretrained(folder / "peer")
    else:
        import gguf
        from safetensors import safe_open

        begin = time.process_time()
        writer = gguf.GGUFWriter(folder / "peer.gguf", "llama")
        with safe_open(folder / "merged" / "model.safetensors", "pt") as file:
            for name in file.keys():
                writer.add_tensor(name, gguf.quants.quantize(file.get_tensor(name).float().numpy(), gguf.GGMLQuantizationType.F16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    print(time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "finetune")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        return make(options.make, options.layers)
    if options.peer:
        return peer(options.peer[0], Path(options.peer[1]))
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In another process: the peak of a child begins with that of its parent.
        subprocess.run([sys.executable, __file__, "--make", name, "--layers", str(options.layers)], check=True)
        kinds = {
            "merged bf16": ["merged"],
            "GGUF f16": ["model.gguf", "--outtype", "f16"],
            "GGUF q8_0": ["model.gguf", "--outtype", "q8_0"],
            "GGUF q4_0": ["model.gguf", "--outtype", "q4_0"],
        }
        print("| | CPU s | peak, MiB | peer: CPU s | peak, MiB |\n|---|---|---|---|---|", flush=True)
        for kind, (out, *words) in kinds.items():
            ours, theirs = [], []
            for _ in range(options.rounds):
                command = [options.binary, "export", folder / "adapter", folder / out, "--overwrite", *words]
                ours.append(cost(command))
                if kind in LIMITS:
                    done = subprocess.run([sys.executable, __file__, "--peer", kind, name], capture_output=True, text=True)
                    if done.returncode:
                        sys.exit(done.stderr)
                    theirs.append(tuple(map(float, done.stdout.split()[-2:])))
            mine = [statistics.median(values) for values in zip(*ours)]
            other = [statistics.median(values) for values in zip(*theirs)] if theirs else None
            text = f"{other[0]:.1f} | {other[1]:.0f}" if other else " | "
            print(f"| {kind} | {mine[0]:.1f} | {mine[1]:.0f} | {text} |", flush=True)
            failed |= mine[1] > MOST_MIB + 60 or (other is not None and mine[0] > LIMITS[kind] * other[0])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
