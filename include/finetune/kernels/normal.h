// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Fills `values` (float32, contiguous, on the CPU) with normally distributed numbers of mean 0 and
// this standard deviation. Row r uses the sequence of (seed, Purpose::kInitialization, stream, r),
// so the numbers do not depend on threads.
void fill_normal(const Tensor& values, double deviation, uint64_t seed, uint64_t stream);
// The same with numbers that are uniform in [-bound, bound).
void fill_uniform(const Tensor& values, double bound, uint64_t seed, uint64_t stream);

}  // namespace finetune
