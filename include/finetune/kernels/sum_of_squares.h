// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Of a contiguous float32 or bfloat16 tensor; not finite where one of its values is not. On the CPU
// summed in float64 in an order that threads do not change, elsewhere as torch does it.
[[nodiscard]] double sum_of_squares(const Tensor& values);
// Of several of them on one device: the sum of their sums. The host waits for a device once.
[[nodiscard]] double sum_of_all_squares(const std::vector<Tensor>& tensors);

// Of a contiguous float32 tensor, likewise.
[[nodiscard]] double mean(const Tensor& values);

}  // namespace finetune
