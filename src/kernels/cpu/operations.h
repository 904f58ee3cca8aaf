// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/interface/kernels.h"

// The operations as vectorised loops (loops/, without torch), divided among threads, for float32,
// bfloat16 and float16.
namespace finetune::kernels::cpu {

extern const Kernels kKernels;
// Of weight and gradient: a chunk then fits the L2 caches of two cores.
inline constexpr int64_t kChunkValues = int64_t{1} << 18;

#define FINETUNE_OPERATION(operation) FunctionOf<decltype(Kernels::operation)> operation;
#include "kernels/interface/operations.def"

}  // namespace finetune::kernels::cpu
