// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune {

// A tensor of a model in its storage format, with its gradient: what updates read and write.
struct ParameterTensors {
  Tensor weight;           // float32 or bfloat16; codes of a frozen weight of four bits
  Tensor correction = {};  // int8, shape of weight: with it the values are those of join_values()
  Tensor scales = {};      // of codes
  Tensor gradient = {};    // float32 or bfloat16, shape of weight; undefined: none in this update
};

}  // namespace finetune
