// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Sums the squares of a contiguous float32 or bfloat16 tensor; non-finite if a value is. On the CPU
// summed in float64 in an order that does not depend on threads, elsewhere by torch.
[[nodiscard]] double sum_of_squares(const Tensor& values);
// Sums the squares of several tensors on one device: the sum of their sums. The host waits for a
// device only once.
[[nodiscard]] double sum_of_all_squares(const std::vector<Tensor>& tensors);

// The same of each block of this number of values, the last one shorter: the sums of a part of a
// tensor that begins at a block are those of the whole.
inline constexpr int64_t kSquaresBlock = 16384;
[[nodiscard]] std::vector<double> block_sums_of_squares(const Tensor& values);

// Averages a contiguous float32 tensor, likewise.
[[nodiscard]] double mean(const Tensor& values);

}  // namespace finetune
