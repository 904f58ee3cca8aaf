// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/interface/kernels.h"

// The operations of cpu/ on the meta device: they allocate what those allocate, to keep and for a
// while, and compute nothing. The other tables need no copy here: plain/ is ATen's operators, and
// the functions of cuda/ run as they are, without their launches.
namespace finetune::kernels::meta {

extern const Kernels kCpuKernels;

}  // namespace finetune::kernels::meta
