// SPDX-License-Identifier: MIT
#include "model/embeddings.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace finetune {
namespace {

// [B, T, C], or [1, C] where every token is of type 0.
Tensor embed_types(const Embedding& table, const ModelInput& input, const ForwardContext& context) {
  if (input.token_type_ids.defined()) {
    return table->forward(context.without_padding(input.token_type_ids), context);
  }
  return table->forward(at::zeros({1}, input.input_ids.options()), context);
}

}  // namespace

// Registered in transformers' order, which is the order of the optimizer's state in optimizer.pt.
RobertaEmbeddingsImpl::RobertaEmbeddingsImpl(const ModelConfig& config)
    : padding_id_(config.pad_token_id),
      dropout_(config.hidden_dropout_prob),
      word_embeddings_(
          register_module("word_embeddings", Embedding(config.vocab_size, config.hidden_size))),
      token_type_embeddings_(register_module(
          "token_type_embeddings", Embedding(config.type_vocab_size, config.hidden_size))),
      layer_norm_(register_module("LayerNorm", LayerNorm(config))),
      position_embeddings_(register_module(
          "position_embeddings", Embedding(config.max_position_embeddings, config.hidden_size))) {}

Tensor RobertaEmbeddingsImpl::forward(const ModelInput& input, const ForwardContext& context) {
  const Tensor is_token = input.input_ids.ne(padding_id_);
  const Tensor positions = is_token.cumsum(1) * is_token + padding_id_;  // [B, T]
  // padding_idx keeps the gradient of the padding's row at zero, as torch's Embedding does.
  const Tensor words =
      word_embeddings_(context.without_padding(input.input_ids), context, padding_id_);
  const Tensor types = embed_types(token_type_embeddings_, input, context);
  const Tensor places =
      position_embeddings_(context.without_padding(positions), context, padding_id_);
  return context.drop(layer_norm_(words + types + places, context), dropout_, 0,
                      DropoutSite::kEmbeddings);
}

BertEmbeddingsImpl::BertEmbeddingsImpl(const ModelConfig& config)
    : padding_id_(config.pad_token_id),
      dropout_(config.hidden_dropout_prob),
      word_embeddings_(
          register_module("word_embeddings", Embedding(config.vocab_size, config.hidden_size))),
      position_embeddings_(register_module(
          "position_embeddings", Embedding(config.max_position_embeddings, config.hidden_size))),
      token_type_embeddings_(register_module(
          "token_type_embeddings", Embedding(config.type_vocab_size, config.hidden_size))),
      layer_norm_(register_module("LayerNorm", LayerNorm(config))) {}

Tensor BertEmbeddingsImpl::sum(const ModelInput& input, double word_scale,
                               const ForwardContext& context) {
  Tensor words = word_embeddings_(context.without_padding(input.input_ids), context, padding_id_);
  if (word_scale != 1.0) words = words * word_scale;
  const Tensor types = embed_types(token_type_embeddings_, input, context);
  const Tensor positions = context.layout
                               ? context.layout->places
                               : at::arange(input.input_ids.size(1), input.input_ids.options());
  const Tensor places = position_embeddings_(positions, context);
  return words + types + places;
}

Tensor BertEmbeddingsImpl::forward(const ModelInput& input, const ForwardContext& context) {
  return context.drop(normalize(sum(input, 1.0, context), context), dropout_, 0,
                      DropoutSite::kEmbeddings);
}

BigBirdEmbeddingsImpl::BigBirdEmbeddingsImpl(const ModelConfig& config)
    : BertEmbeddingsImpl(config),
      word_scale_(config.rescale_embeddings ? std::sqrt(static_cast<double>(config.hidden_size))
                                            : 1.0) {}

Tensor BigBirdEmbeddingsImpl::forward(const ModelInput& input, const ForwardContext& context) {
  const Tensor dropped =
      context.drop(sum(input, word_scale_, context), dropout(), 0, DropoutSite::kEmbeddings);
  return normalize(dropped, context);
}

}  // namespace finetune
