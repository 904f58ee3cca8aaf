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
  // Of layers that are recurrent, by layer: the states after these tokens, and the last inputs of
  // convolutions.
  std::vector<Tensor> states, last_inputs;
  int64_t length = 0;
};

}  // namespace finetune
