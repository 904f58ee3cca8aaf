// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Keys and values of the tokens that a causal language model has processed, so that later passes
// need not recompute them. One text. By layer: [1, n, kv_heads * D], of which the first `length`
// rows are valid. Starts empty; each pass appends its tokens.
struct KeyValueCache {
  std::vector<Tensor> keys, values;
  int64_t length = 0;
};

}  // namespace finetune
