// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// The keys and values of a text that a causal language model goes on with, by layer: [1, n,
// kv_heads
// * D] of which the first `length` rows are there. A pass over more tokens adds theirs.
struct KeyValueCache {
  std::vector<Tensor> keys, values;
  int64_t length = 0;
};

}  // namespace finetune
