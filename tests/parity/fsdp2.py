# SPDX-License-Identifier: MIT
"""One rank of a run of torch's FSDP2 on the CPU: fsdp2.py MODEL BLOCKS.json RANK RANKS PORT STEPS BATCH RATE.

Rank 0 prints the loss of each update as JSON, and the weights' file that it wrote."""

import json
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM


def main():
    folder, blocks, rank, ranks, port, steps, batch = sys.argv[1:8]
    rank, ranks, steps, batch = int(rank), int(ranks), int(steps), int(batch)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(sys.argv[8]), weight_decay=0.0)
    rows = json.loads(open(blocks).read())
    losses = []
    model.train()
    for step in range(steps):
        first = step * batch + rank * (batch // ranks)
        ids = torch.tensor([rows[i % len(rows)] for i in range(first, first + batch // ranks)])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
    whole = {}
    for name, value in model.state_dict().items():
        whole[name] = (value.full_tensor() if isinstance(value, DTensor) else value).clone()
    if rank == 0:
        if model.config.tie_word_embeddings:
            whole.pop("lm_head.weight", None)
        save_file(whole, os.path.join(folder, "fsdp2.safetensors"))
        print(json.dumps(losses), flush=True)
    dist.destroy_process_group()


main()
