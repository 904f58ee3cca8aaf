// SPDX-License-Identifier: MIT
#include "model/embeddings.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

namespace finetune {

// Registered in transformers' order, which is the order of the optimizer's state in optimizer.pt.
RobertaEmbeddingsImpl::RobertaEmbeddingsImpl(const ModelConfig& config)
    : padding_id_(config.pad_token_id),
      dropout_(config.hidden_dropout_prob),
      word_embeddings_(
          register_module("word_embeddings", nn::Embedding(config.vocab_size, config.hidden_size))),
      token_type_embeddings_(register_module(
          "token_type_embeddings", nn::Embedding(config.type_vocab_size, config.hidden_size))),
      layer_norm_(register_module(
          "LayerNorm",
          nn::LayerNorm(nn::LayerNormOptions({config.hidden_size}).eps(config.layer_norm_eps)))),
      position_embeddings_(
          register_module("position_embeddings",
                          nn::Embedding(config.max_position_embeddings, config.hidden_size))) {}

Tensor RobertaEmbeddingsImpl::forward(const Tensor& input_ids, const ForwardContext& context) {
  const Tensor is_token = input_ids.ne(padding_id_);
  const Tensor positions = is_token.cumsum(1) * is_token + padding_id_;  // [B, T]
  // padding_idx keeps the gradient of the padding's row at zero, as torch's Embedding does.
  const Tensor words = at::embedding(word_embeddings_->weight, input_ids, padding_id_);
  const Tensor places = at::embedding(position_embeddings_->weight, positions, padding_id_);
  const Tensor sum = words + token_type_embeddings_->weight[0] + places;
  return context.drop(layer_norm_(sum), dropout_, 0, DropoutSite::kEmbeddings);
}

}  // namespace finetune
