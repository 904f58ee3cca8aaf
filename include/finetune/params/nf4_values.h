// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A matrix that was quantised to NF4, on the CPU; see kernels/nf4.h.
struct Nf4Values {
  std::vector<int64_t> sizes;
  Tensor codes;   // uint8 [nf4_code_bytes(values)]
  Tensor scales;  // float32 [nf4_blocks(values)]; those of double quantisation already unpacked
  at::ScalarType type = at::kFloat;  // in which the matrix was, and is computed
};

}  // namespace finetune
