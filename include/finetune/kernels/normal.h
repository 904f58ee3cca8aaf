// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Fills `values` (float32, contiguous, on the CPU) with normal numbers of this deviation and mean
// 0. Row r has the sequence of (seed, Purpose::kInitialization, stream, r), so that the numbers do
// not depend on threads.
void fill_normal(const Tensor& values, double deviation, uint64_t seed, uint64_t stream);

}  // namespace finetune
