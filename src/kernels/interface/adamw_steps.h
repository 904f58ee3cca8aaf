// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/quantized_state.h"
#include "kernels/interface/adamw_numbers.h"

namespace finetune::kernels {

// An AdamWStep together with the scalars that the arithmetic of its state needs.
struct AdamWJob {
  const ParameterTensors* parameter = nullptr;
  AdamWState state;
  double factor = 1.0;
  uint64_t rounding_key = 0;
  BitsAndBytesNumbers theirs = {};  // of DynamicState and WideState
  AdamWNumbers ours = {};           // of CompandedState and MomentState
};

}  // namespace finetune::kernels
