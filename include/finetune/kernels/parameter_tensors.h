// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A tensor of a model in its storage format, with its gradient: what updates read and write.
struct ParameterTensors {
  Tensor weight;           // float32 or bfloat16; codes of a frozen weight of four bits
  Tensor correction = {};  // int8, shape of weight: with it the values are those of join_values()
  Tensor scales = {};      // of codes
  Tensor gradient = {};    // float32 or bfloat16, shape of weight; undefined: none in this update
  // Of a part of a flattened tensor: the index of its first value, which random numbers of rounding
  // depend on.
  int64_t first_value = 0;
};

}  // namespace finetune
