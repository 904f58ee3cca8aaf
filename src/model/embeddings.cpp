// SPDX-License-Identifier: MIT
#include "model/embeddings.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "finetune/nn/elementwise.h"
#include "finetune/tensor/device.h"
#include "model/backbone.h"

namespace finetune {

Tensor without_padding(const Tensor& x, const nn::Pass& p) {
  return p.layout() ? x.flatten().index_select(0, p.layout()->cells).unsqueeze(0) : x;
}

nn::Value embed_types(const nn::Embedding& table, const ModelInput& input, nn::Pass& p) {
  if (input.token_type_ids.defined()) return table(without_padding(input.token_type_ids, p), p);
  return table(at::zeros({1}, input.input_ids.options()), p);
}

namespace {

// How many of a row's tokens [B, T] stand up to each. Where operators are compiled, by doubled
// shifts (Hillis and Steele): XLA's compiler for CPUs ends the process at a cumsum (plugin of
// 2026-11).
Tensor counted(const Tensor& is_token) {
  if (!compiles_shapes(is_token.device())) return is_token.cumsum(1);
  Tensor count = is_token.to(at::kLong);
  for (int64_t shift = 1; shift < count.size(1); shift *= 2) {
    count = count + at::constant_pad_nd(count.narrow(1, 0, count.size(1) - shift), {shift, 0});
  }
  return count;
}

}  // namespace

RobertaEmbeddings::RobertaEmbeddings(const nn::Scope& scope, const ModelConfig& config,
                                     bool has_types, bool has_norm)
    : padding_id_(config.pad_token_id),
      dropout_(config.hidden_dropout_prob),
      words_(scope / "word_embeddings", config.vocab_size, config.hidden_size,
             ParameterRole::kWordEmbedding) {
  const int64_t size = config.hidden_size;
  const auto make_positions = [&] {
    positions_.emplace(scope / "position_embeddings", config.max_position_embeddings, size);
  };
  if (has_types) types_.emplace(scope / "token_type_embeddings", config.type_vocab_size, size);
  if (!has_types) make_positions();
  if (has_norm) norm_.emplace(scope / "LayerNorm", size, config.layer_norm_eps);
  if (has_types) make_positions();
}

nn::Value RobertaEmbeddings::operator()(const ModelInput& input, nn::Pass& p) const {
  const Tensor is_token = input.input_ids.ne(padding_id_);
  const Tensor indices = counted(is_token) * is_token + padding_id_;  // [B, T]
  // As in torch's Embedding, padding_id keeps the gradient of that row at zero.
  std::vector<nn::Value> terms = {words_(without_padding(input.input_ids, p), p, padding_id_)};
  if (types_) terms.push_back(embed_types(*types_, input, p));
  terms.push_back((*positions_)(without_padding(indices, p), p, padding_id_));
  nn::Value sum = nn::add(terms, p);
  return nn::dropout(norm_ ? (*norm_)(sum, p) : std::move(sum), {.p = dropout_}, p);
}

BertEmbeddings::BertEmbeddings(const nn::Scope& scope, const ModelConfig& config,
                               const EmbeddingTables& tables)
    : padding_id_(config.pad_token_id),
      dropout_(config.hidden_dropout_prob),
      tables_(tables),
      words_(scope / "word_embeddings", config.vocab_size, config.hidden_size,
             ParameterRole::kWordEmbedding) {
  const int64_t size = config.hidden_size;
  if (tables.positions) {
    positions_.emplace(scope / "position_embeddings", config.max_position_embeddings, size);
  }
  if (tables.types) types_.emplace(scope / "token_type_embeddings", config.type_vocab_size, size);
  norm_.emplace(scope / "LayerNorm", size, config.layer_norm_eps);
  if (tables.tasks > 0) tasks_.emplace(scope / "task_type_embeddings", tables.tasks, size);
}

nn::Value BertEmbeddings::sum(const ModelInput& input, double word_scale, nn::Pass& p) const {
  nn::Value words = words_(without_padding(input.input_ids, p), p, padding_id_);
  if (word_scale != 1.0) words = nn::scale(std::move(words), word_scale, p);
  std::vector<nn::Value> terms = {std::move(words)};
  if (types_) terms.push_back(embed_types(*types_, input, p));
  if (positions_) {
    const Tensor indices = p.layout()
                               ? p.layout()->positions
                               : at::arange(input.input_ids.size(1), input.input_ids.options());
    terms.push_back((*positions_)(indices, p));
    if (tables_.positions_come_first) std::swap(terms[1], terms.back());
  }
  if (tasks_) terms.push_back((*tasks_)(at::zeros({1}, input.input_ids.options()), p));
  return terms.size() == 1 ? std::move(terms.front()) : nn::add(terms, p);
}

nn::Value BertEmbeddings::drop(nn::Value x, nn::Pass& p) const {
  return nn::dropout(std::move(x), {.p = dropout_}, p);
}

nn::Value BertEmbeddings::operator()(const ModelInput& input, nn::Pass& p) const {
  nn::Value x = (*norm_)(sum(input, 1.0, p), p);
  return drop(tables_.zeroes_padding ? nn::zero_padding(std::move(x), p) : std::move(x), p);
}

BigBirdEmbeddings::BigBirdEmbeddings(const nn::Scope& scope, const ModelConfig& config)
    : BertEmbeddings(scope, config),
      word_scale_(config.rescale_embeddings ? std::sqrt(static_cast<double>(config.hidden_size))
                                            : 1.0) {}

nn::Value BigBirdEmbeddings::operator()(const ModelInput& input, nn::Pass& p) const {
  return norm()(drop(sum(input, word_scale_, p), p), p);
}

}  // namespace finetune
