// SPDX-License-Identifier: MIT
#include "model/encoder.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include "finetune/base/error.h"

namespace finetune {

Tensor activate(const Tensor& x, const std::string& name) {
  if (name == "gelu") return at::gelu(x);
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") {
    return at::gelu(x, "tanh");
  }
  if (name == "relu") return at::relu(x);
  if (name == "silu" || name == "swish") return at::silu(x);
  if (name == "tanh") return at::tanh(x);
  FT_CHECK(false, "an activation that parse_model_config lets through has no code: " + name);
}

IntermediateImpl::IntermediateImpl(const ModelConfig& config)
    : activation_(config.hidden_act),
      dense_(register_module("dense", nn::Linear(config.hidden_size, config.intermediate_size))) {}

Tensor IntermediateImpl::forward(const Tensor& x) { return activate(dense_(x), activation_); }

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config, int64_t layer)
    : attention_(register_module("attention", Attention(config, layer))),
      intermediate_(register_module("intermediate", Intermediate(config))),
      output_(register_module("output", AddAndNorm(config, config.intermediate_size, layer,
                                                   DropoutSite::kFeedForwardOutput))) {}

EncoderImpl::EncoderImpl(const ModelConfig& config) {
  nn::ModuleList list;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers_.emplace_back(EncoderLayer(config, layer));
    list->push_back(layers_.back());
  }
  register_module("layer", list);
}

Tensor EncoderImpl::forward(Tensor x, const ForwardContext& context) {
  for (EncoderLayer& layer : layers_) x = layer(x, context);
  return x;
}

}  // namespace finetune
