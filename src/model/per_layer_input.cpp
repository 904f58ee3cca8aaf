// SPDX-License-Identifier: MIT
#include "model/per_layer_input.h"

#include <cmath>

#include "finetune/nn/elementwise.h"

namespace finetune {

PerLayerInputs::PerLayerInputs(const nn::Scope& scope, const PerLayerInputOptions& options)
    : options_(options),
      embedding_(scope / "embed_tokens_per_layer", options.vocabulary,
                 options.layers * options.size),
      projection_(scope / "per_layer_model_projection", options.hidden,
                  options.layers * options.size, /*has_bias=*/false),
      norm_(scope / "per_layer_projection_norm", options.size, options.epsilon) {}

std::vector<nn::Value> PerLayerInputs::operator()(const Tensor& ids, const nn::Value& x,
                                                  nn::Pass& p) const {
  const auto root = [](int64_t size) { return std::sqrt(static_cast<double>(size)); };
  const Tensor rows = ids.masked_fill(ids.ge(options_.vocabulary), 0);
  nn::Value all = nn::scale(embedding_(rows, p, options_.padding_row), root(options_.size), p);
  nn::Value own = nn::scale(projection_(nn::to_factor(x, p), p), 1.0 / root(options_.hidden), p);
  own = nn::joined_heads(norm_(nn::split_heads(std::move(own), options_.layers, p), p), p);
  all = nn::scale(nn::add({std::move(own), std::move(all)}, p), 1.0 / std::sqrt(2.0), p);
  const std::vector<int64_t> sizes(static_cast<size_t>(options_.layers), options_.size);
  return nn::split(nn::to_precision(std::move(all), p), sizes, p);
}

PerLayerInput::PerLayerInput(const nn::Scope& scope, const PerLayerInputOptions& options)
    : gate_(scope / "per_layer_input_gate", options.hidden, options.size, /*has_bias=*/false),
      projection_(scope / "per_layer_projection", options.size, options.hidden,
                  /*has_bias=*/false),
      norm_(scope / "post_per_layer_input_norm", options.hidden, options.epsilon),
      activation_(options.activation) {}

nn::Value PerLayerInput::operator()(nn::Value x, nn::Value input, nn::Pass& p) const {
  nn::Value gate = gate_(nn::to_factor(std::move(x), p), p);
  return norm_(projection_(nn::gated(std::move(gate), std::move(input), activation_, p), p), p);
}

}  // namespace finetune
