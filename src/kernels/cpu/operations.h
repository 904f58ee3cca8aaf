// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kernels.h"

// The operations by vectorised loops (loops/, which see no torch), divided among threads. float32,
// bfloat16 and float16.
namespace finetune::kernels::cpu {

extern const Kernels kKernels;

#define FINETUNE_OPERATION(operation) FunctionOf<decltype(Kernels::operation)> operation;
#include "kernels/operations.def"

}  // namespace finetune::kernels::cpu
