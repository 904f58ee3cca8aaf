// SPDX-License-Identifier: MIT
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

constinit const Kernels kKernels = {
    .name = "cuda",
#define FINETUNE_OPERATION(operation) .operation = operation,  // NOLINT: a member
#include "kernels/interface/operations.def"
    .chunk_values = int64_t{1} << 22,
    .is_asynchronous = true,
    .flash_attention = &kFlashAttention,
    .adapter_products = &kAdapterProducts,
};

}  // namespace finetune::kernels::cuda
