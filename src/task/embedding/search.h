// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "finetune/tensor/tensor.h"

namespace finetune {

struct Neighbour {
  float score;  // product with the query
  int64_t document;
};

// Calls `visit` for each of `queries` [Q, D] in order with the `most` rows of `documents` [N, D]
// that have the highest products with it, the highest first; of equal ones the first, of NaN none.
// Both are float32 on the CPU. Exact; a few MiB of products are in memory at a time. Throws
// Interrupted.
void visit_nearest(
    const Tensor& queries, const Tensor& documents, int64_t most,
    const std::function<void(int64_t query, std::span<const Neighbour> nearest)>& visit);

// Returns rows of length 1 [N, D], float32 on the CPU.
[[nodiscard]] Tensor unit_rows(const Tensor& vectors);

}  // namespace finetune
