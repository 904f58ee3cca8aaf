// SPDX-License-Identifier: MIT
#include "model/encoder.h"

namespace finetune {

IntermediateImpl::IntermediateImpl(const ModelConfig& config)
    : activation_(find_activation(config.hidden_act)),
      dense_(register_module("dense", nn::Linear(config.hidden_size, config.intermediate_size))) {}

Tensor IntermediateImpl::forward(const Tensor& x) { return activation_(dense_(x)); }

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

EncoderModelImpl::EncoderModelImpl(const ModelConfig& config,
                                   std::shared_ptr<EmbeddingsImpl> embeddings,
                                   std::shared_ptr<PoolerImpl> pooler)
    : embeddings_(register_module("embeddings", std::move(embeddings))),
      encoder_(register_module("encoder", Encoder(config))) {
  if (pooler) pooler_ = register_module("pooler", std::move(pooler));
}

}  // namespace finetune
