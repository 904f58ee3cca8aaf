// SPDX-License-Identifier: MIT
#include "model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

#include "model/layer_norm.h"

namespace finetune {
namespace {

nn::LinearOptions projection(const ModelConfig& config) {
  return nn::LinearOptions(config.hidden_size, config.hidden_size).bias(config.use_bias);
}

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const ModelConfig& config, int64_t layer)
    : layer_(layer),
      heads_(config.num_attention_heads),
      dropout_(config.attention_probs_dropout_prob),
      query_(register_module("query", nn::Linear(projection(config)))),
      key_(register_module("key", nn::Linear(projection(config)))),
      value_(register_module("value", nn::Linear(projection(config)))) {}

Tensor SelfAttentionImpl::forward(const Tensor& x, const ForwardContext& context) {
  const auto by_head = [&](const Tensor& t) {
    return t.unflatten(-1, {heads_, -1}).transpose(1, 2);  // [B, H, T, D]
  };
  const Tensor q = by_head(query_(x));
  const Tensor k = by_head(key_(x));
  const Tensor v = by_head(value_(x));
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

AddAndNormImpl::AddAndNormImpl(const ModelConfig& config, int64_t input_size, int64_t layer,
                               DropoutSite site)
    : layer_(layer),
      site_(site),
      dropout_(config.hidden_dropout_prob),
      dense_(register_module("dense", nn::Linear(input_size, config.hidden_size))),
      layer_norm_(register_module("LayerNorm", make_layer_norm(config))) {}

Tensor AddAndNormImpl::forward(const Tensor& x, const Tensor& residual,
                               const ForwardContext& context) {
  return layer_norm_(residual + context.drop(dense_(x), dropout_, layer_, site_));
}

AttentionImpl::AttentionImpl(const ModelConfig& config, int64_t layer)
    : self_(register_module("self", SelfAttention(config, layer))),
      output_(register_module(
          "output", AddAndNorm(config, config.hidden_size, layer, DropoutSite::kAttentionOutput))) {
}

}  // namespace finetune
