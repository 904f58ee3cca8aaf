#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares operators.txt with the types that each operator supports on CUDA by torch's own list (OpInfo, which its
tests use), without a GPU: the pretend accelerator computes with the CPU's kernels, which know other types."""
import pathlib

import torch
from torch.testing._internal import common_cuda

common_cuda.SM53OrLater = True  # every GPU that torch supports; without a GPU the list takes it for false
from torch.testing._internal.common_methods_invocations import (  # noqa: E402
    foreach_binary_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)

LIST = pathlib.Path(__file__).parent / "operators.txt"
# Names of the list's operators where torch's own differ; "backward": the types of the gradient's kernel.
OTHERS = {
    "log_sigmoid_forward": "nn.functional.logsigmoid",
    "log_sigmoid_backward": "nn.functional.logsigmoid backward",
    "_log_softmax": "log_softmax",
    "_softmax": "softmax",
    "_unique2": "unique",
    "_index_put_impl_": "index_put",
    "_log_softmax_backward_data": "log_softmax backward",
    "gelu_backward": "nn.functional.gelu backward",
    "silu": "nn.functional.silu",
    "nll_loss_forward": "nn.functional.nll_loss",
    "nll_loss_backward": "nn.functional.nll_loss backward",
    "native_layer_norm_backward": "native_layer_norm backward",
    "sigmoid_backward": "sigmoid backward",
    "tanh_backward": "tanh backward",
}
# Operators or types that torch's list lacks, by ATen's sources: fused_adamw_impl.cu dispatches by these; attention has
# rows and their sums in float32; cumsum() converts to its result's type before it calls a device's kernel.
FLOATS = {"float16", "bfloat16", "float32"}
NOT_LISTED = {
    "_fused_adamw_": FLOATS,
    "_flash_attention_forward": {"float16", "bfloat16"},
    "_flash_attention_backward": FLOATS,
    "_efficient_attention_forward": FLOATS,
    "_efficient_attention_backward": FLOATS,
    "cumsum": {"bool"},
}


def types_on_cuda():
    found = {}
    for info in [*op_db, *foreach_binary_op_db, *foreach_reduce_op_db, *foreach_unary_op_db]:
        for name in {info.name, info.aten_name}:
            for suffix, types in (("", info.dtypesIfCUDA), (" backward", info.supported_backward_dtypes("cuda"))):
                found.setdefault(name + suffix, set()).update(str(one).removeprefix("torch.") for one in types)
    return found


def main():
    supported = types_on_cuda()
    wrong = []
    lines = LIST.read_text().splitlines()
    for line in lines:
        full, *types = line.split()
        name = full.removeprefix("aten::").split(".")[0]
        listed = supported.get(OTHERS.get(name, name)) or supported.get(name.rstrip("_"), set())
        known = listed | NOT_LISTED.get(name, set())
        if not known:
            wrong.append(f"{full}: torch {torch.__version__} lists no such operator; name its counterpart in OTHERS")
        elif not types or set(types) - known:
            wrong.append(f"{full}: {' '.join(sorted(set(types) - known)) or 'no type'}; CUDA's kernel takes {' '.join(sorted(known))}")
    print("\n".join(wrong) or f"{len(lines)} operators, with types that CUDA's kernels take")
    return 1 if wrong or not lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
