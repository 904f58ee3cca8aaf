// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/base/activation_checkpointing.h"
#include "finetune/kernels/precision.h"
#include "finetune/params/base_format.h"
#include "finetune/params/parameter.h"

namespace finetune {

// Which parameters ranks divide among them (zero_stage: 2 and 3): all large ones but adapters.
struct ShardingOptions {
  Division division = {};
  bool divides_frozen = false;
};

// How a model computes, and what it keeps. The default is the reference: torch's operators in
// float32, gradients by autograd in each parameter's grad().
struct ModelOptions {
  // Hand-written backward passes with gradients in Model::store(). All options below require it.
  bool fused = false;
  WeightFormat weights = WeightFormat::kFloat32;
  GradientFormat gradients = GradientFormat::kFloat32;
  Precision precision = Precision::kFloat32;             // of the layers in training
  Precision evaluation_precision = Precision::kFloat32;  // of the layers in evaluation
  ActivationCheckpointing checkpointing = {};
  bool draw_weights = true;  // false: every weight will be assigned later, so none is initialised
  std::vector<std::string> freeze = {};  // patterns of FrozenParameters
  BaseFormat base = {};                  // of the frozen base of an adapter
  bool int8_products = false;            // of evaluation, as an export in int8 has them
  int64_t head_rows_per_chunk = 128;     // of the vocabulary's logits, 4 V bytes each
  ShardingOptions sharding = {};
};

}  // namespace finetune
