// SPDX-License-Identifier: MIT
#include "model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace finetune {
namespace {

Linear projection(const ModelConfig& config) {
  return Linear(config.hidden_size, config.hidden_size, config.use_bias);
}

}  // namespace

std::optional<BlockSparseOptions> block_sparse_options(const ModelConfig& config) {
  if (config.attention_type != "block_sparse") return std::nullopt;
  return BlockSparseOptions{.block_size = config.block_size,
                            .random_blocks = config.num_random_blocks,
                            .seed = static_cast<uint64_t>(config.random_blocks_seed.value_or(0)),
                            .like_transformers = config.bigbird_compat == "huggingface"};
}

SelfAttentionImpl::SelfAttentionImpl(const ModelConfig& config, int64_t layer)
    : layer_(layer),
      heads_(config.num_attention_heads),
      dropout_(config.attention_probs_dropout_prob),
      block_sparse_(block_sparse_options(config)),
      query_(register_module("query", projection(config))),
      key_(register_module("key", projection(config))),
      value_(register_module("value", projection(config))) {}

Tensor SelfAttentionImpl::forward(const Tensor& x, const ForwardContext& context) {
  if (block_sparse_ && x.size(1) > block_sparse_->longest_full()) {
    return block_sparse_attention({.query = query_(x, context),
                                   .key = key_(x, context),
                                   .value = value_(x, context),
                                   .heads = heads_,
                                   .mask = context.mask,
                                   .layer = layer_,
                                   .dropout_probability = dropout_,
                                   .dropout = context.dropout},
                                  *block_sparse_);
  }
  const auto by_head = [&](const Tensor& t) {
    return t.unflatten(-1, {heads_, -1}).transpose(1, 2);  // [B, H, T, D]
  };
  const Tensor q = by_head(query_(x, context));
  const Tensor k = by_head(key_(x, context));
  const Tensor v = by_head(value_(x, context));
  Tensor result;  // [B, H, T, D]
  if (!context.dropout || dropout_ == 0.0) {
    const std::optional<Tensor> mask =
        context.mask.defined() ? std::optional<Tensor>(context.mask) : std::nullopt;
    result = at::scaled_dot_product_attention(q, k, v, mask);
  } else {
    // The fused kernels draw their dropout from a global stream, which no resume can restore
    // exactly; here it is a function of the element's coordinates.
    Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(-1)));
    if (context.mask.defined()) {
      scores =
          scores.masked_fill(context.mask.logical_not(), -std::numeric_limits<float>::infinity());
    }
    const Tensor probabilities =
        context.drop(scores.softmax(-1), dropout_, layer_, DropoutSite::kAttentionProbabilities);
    result = probabilities.matmul(v);
  }
  return result.transpose(1, 2).flatten(2);  // [B, T, C]
}

void SelfAttentionImpl::name_weights(EncoderLayerWeights& weights) const {
  weights.query = query_->weight;
  weights.query_bias = query_->bias;
  weights.key = key_->weight;
  weights.key_bias = key_->bias;
  weights.value = value_->weight;
  weights.value_bias = value_->bias;
}

AddAndNormImpl::AddAndNormImpl(const ModelConfig& config, int64_t input_size, int64_t layer,
                               DropoutSite site)
    : layer_(layer),
      site_(site),
      dropout_(config.hidden_dropout_prob),
      dense_(register_module("dense", Linear(input_size, config.hidden_size))),
      layer_norm_(register_module("LayerNorm", LayerNorm(config))) {}

Tensor AddAndNormImpl::forward(const Tensor& x, const Tensor& residual,
                               const ForwardContext& context) {
  return layer_norm_(residual + context.drop(dense_(x, context), dropout_, layer_, site_), context);
}

AttentionImpl::AttentionImpl(const ModelConfig& config, int64_t layer)
    : self_(register_module("self", SelfAttention(config, layer))),
      output_(register_module(
          "output", AddAndNorm(config, config.hidden_size, layer, DropoutSite::kAttentionOutput))) {
}

void AttentionImpl::name_weights(EncoderLayerWeights& weights) const {
  self_->name_weights(weights);
  weights.attention_output = output_->dense()->weight;
  weights.attention_output_bias = output_->dense()->bias;
  weights.attention_norm = output_->layer_norm()->weight;
  weights.attention_norm_bias = output_->layer_norm()->bias;
}

}  // namespace finetune
