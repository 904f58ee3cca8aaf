// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kernels.h"

// The operations as vectorised loops (loops/, without torch), divided among threads, for float32,
// bfloat16 and float16.
namespace finetune::kernels::cpu {

extern const Kernels kKernels;

#define FINETUNE_OPERATION(operation) FunctionOf<decltype(Kernels::operation)> operation;
#include "kernels/operations.def"

}  // namespace finetune::kernels::cpu
