// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/kernels/parameter_store.h"
#include "finetune/kernels/precision.h"

namespace finetune {

// How a model computes and what it keeps. The default is the readable way: torch's operators in
// float32, gradients by autograd in each parameter's grad().
struct ModelOptions {
  // Backward passes written by hand, gradients in Model::store(). All that follows needs it.
  bool fused = false;
  WeightFormat weights = WeightFormat::kFloat32;
  GradientFormat gradients = GradientFormat::kFloat32;
  Precision precision = Precision::kFloat32;             // of the encoder's layers in training
  Precision evaluation_precision = Precision::kFloat32;  // and without dropout
  // Keep only the input of every N-th layer and recompute the rest (Chen et al. 2016); 0: keep what
  // each layer's backward pass needs.
  int64_t checkpoint_every_n_layers = 0;
  bool offload = false;               // these inputs wait in the host's memory
  bool selective = false;             // keep matrix products, compute all else again
  bool draw_weights = true;           // false: every weight will be assigned, so none is drawn
  int64_t head_rows_per_chunk = 128;  // of the vocabulary's logits, 4 V bytes each
};

}  // namespace finetune
