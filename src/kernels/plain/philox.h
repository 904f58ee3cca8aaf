// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// Philox 4x32-10 (finetune/base/random.h) with tensor operations. Counters are int64 tensors with
// values below 2^32 that broadcast to one shape; so are the four words returned.
[[nodiscard]] std::array<Tensor, 4> philox_by_tensor_operations(std::array<Tensor, 4> counter,
                                                                uint64_t key);

}  // namespace finetune::kernels
