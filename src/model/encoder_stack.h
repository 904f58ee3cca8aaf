// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/encoder_layer.h"
#include "model/forward_context.h"

namespace finetune {

struct StackedLayer {
  EncoderLayerWeights weights;
  EncoderLayerOptions options;
};

// All layers as one function with a backward pass of its own: it keeps each layer's state, or with
// checkpoint_every_n_layers the input of every n-th layer alone. x [B, T, C] -> [B, T, C] in the
// context's precision. Requires: context.parameters; `layers` outlive the backward pass.
[[nodiscard]] Tensor run_encoder_stack(const std::vector<StackedLayer>& layers, const Tensor& x,
                                       const ForwardContext& context);

}  // namespace finetune
