// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/params/format.h"

namespace finetune {

// A matrix, or a stack of matrices, that was quantised to four bits, on the CPU.
struct QuantizedValues {
  WeightFormat format = WeightFormat::kNf4;  // or kMxfp4
  std::vector<int64_t> sizes;
  Tensor codes;
  Tensor scales;                     // those of double quantisation already unpacked
  at::ScalarType type = at::kFloat;  // in which the matrix was, and is computed
};

}  // namespace finetune
