// SPDX-License-Identifier: MIT
#include "model/encoder.h"

#include <string>
#include <utility>

#include "finetune/base/log.h"

namespace finetune {

IntermediateImpl::IntermediateImpl(const ModelConfig& config)
    : activation_(find_activation(config.hidden_act)),
      dense_(register_module("dense", Linear(config.hidden_size, config.intermediate_size))) {}

Tensor IntermediateImpl::forward(const Tensor& x, const ForwardContext& context) {
  return activation_(dense_(x, context));
}

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config, int64_t layer)
    : options_{.layer = layer,
               .heads = config.num_attention_heads,
               .hidden_dropout = config.hidden_dropout_prob,
               .attention_dropout = config.attention_probs_dropout_prob,
               .layer_norm_eps = config.layer_norm_eps,
               .activation =
                   config.hidden_act == "gelu" ? nullptr : find_activation(config.hidden_act),
               .block_sparse = block_sparse_options(config)},
      attention_(register_module("attention", Attention(config, layer))),
      intermediate_(register_module("intermediate", Intermediate(config))),
      output_(register_module("output", AddAndNorm(config, config.intermediate_size, layer,
                                                   DropoutSite::kFeedForwardOutput))) {
  attention_->name_weights(weights_);
  weights_.intermediate = intermediate_->dense()->weight;
  weights_.intermediate_bias = intermediate_->dense()->bias;
  weights_.output = output_->dense()->weight;
  weights_.output_bias = output_->dense()->bias;
  weights_.output_norm = output_->layer_norm()->weight;
  weights_.output_norm_bias = output_->layer_norm()->bias;
}

EncoderImpl::EncoderImpl(const ModelConfig& config) : block_sparse_(block_sparse_options(config)) {
  nn::ModuleList list;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    layers_.emplace_back(EncoderLayer(config, layer));
    list->push_back(layers_.back());
    stack_.push_back({layers_.back()->weights(), layers_.back()->options()});
  }
  register_module("layer", list);
}

void EncoderImpl::announce_attention(int64_t tokens) {
  if (!block_sparse_) return;
  const bool is_full = tokens <= block_sparse_->longest_full();
  bool& told = is_full ? told_full_ : told_sparse_;
  if (std::exchange(told, true)) return;
  log::info(is_full ? "big_bird: full attention for batches of at most " +
                          std::to_string(block_sparse_->longest_full()) + " tokens"
                    : "big_bird: block-sparse attention, blocks of " +
                          std::to_string(block_sparse_->block_size) + " tokens, " +
                          std::to_string(block_sparse_->random_blocks) + " of them random");
}

Tensor EncoderImpl::forward(const Tensor& x, const ForwardContext& context) {
  announce_attention(context.layout ? context.layout->longest : x.size(1));
  if (context.parameters != nullptr) return run_encoder_stack(stack_, x, context);
  Tensor y = x;
  for (EncoderLayer& layer : layers_) y = layer(y, context);
  return y;
}

EncoderModelImpl::EncoderModelImpl(const ModelConfig& config,
                                   std::shared_ptr<EmbeddingsImpl> embeddings,
                                   std::shared_ptr<PoolerImpl> pooler)
    : embeddings_(register_module("embeddings", std::move(embeddings))),
      encoder_(register_module("encoder", Encoder(config))) {
  if (pooler) pooler_ = register_module("pooler", std::move(pooler));
}

}  // namespace finetune
