// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "kernels/interface/kernels.h"

// The operations with ATen operators, for every device and for float64. Tests compare the other
// tables with these; a device without kernels trains with them.
namespace finetune::kernels::plain {

extern const Kernels kKernels;

#define FINETUNE_OPERATION(operation) FunctionOf<decltype(Kernels::operation)> operation;
#include "kernels/interface/operations.def"

// Returns the type that they compute in: float32, or float64 where a test asks for it.
inline at::ScalarType compute_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Scores of attention computed at a time: their random numbers take ten times their memory.
constexpr int64_t kScoresAtOnce = 1 << 22;

// Returns 1 / sqrt(D) for queries [..., D].
inline double score_scale(const Tensor& query) {
  return 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
}

}  // namespace finetune::kernels::plain
