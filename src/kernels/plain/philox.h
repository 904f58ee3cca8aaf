// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// Philox 4x32-10 (finetune/base/random.h) by plain tensor operations: counters as int64 tensors
// that broadcast to one shape, each below 2^32, and so are the four words.
[[nodiscard]] std::array<Tensor, 4> philox_by_tensor_operations(std::array<Tensor, 4> counter,
                                                                uint64_t key);

}  // namespace finetune::kernels
