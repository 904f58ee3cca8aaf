// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/model/model_config.h"
#include "model/nn.h"

namespace finetune {

// Every norm of these families: over the hidden size, with the configuration's epsilon.
inline nn::LayerNorm make_layer_norm(const ModelConfig& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps));
}

}  // namespace finetune
