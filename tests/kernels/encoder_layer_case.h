// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "finetune/kernels/encoder_layer.h"

namespace finetune {

// A layer with random weights, and what autograd says of it.
struct LayerCase {
  int64_t batch = 3;
  int64_t tokens = 13;
  int64_t heads = 2;
  int64_t head_size = 16;
  int64_t intermediate = 72;
  double dropout = 0.0;
  bool masked = false;
  bool projection_bias = true;
  Tensor (*activation)(const Tensor&) = nullptr;
  at::ScalarType type = at::kFloat;
};

struct LayerGradients {
  Tensor y, dx;
  std::vector<Tensor> weights;  // in the order of RandomLayer::parameters
};

struct RandomLayer {
  LayerCase wanted;
  EncoderLayerWeights weights;
  EncoderLayerOptions options;
  NamedTensors parameters;
  Tensor x, dy, mask;
  std::optional<DropoutStream> dropout;

  explicit RandomLayer(const LayerCase& layer_case) : wanted(layer_case) {
    at::manual_seed(17);
    const int64_t hidden = wanted.heads * wanted.head_size;
    const auto make = [&](Tensor& target, std::string name, std::vector<int64_t> shape, double mean,
                          double deviation) {
      target = (at::randn(shape, wanted.type) * deviation + mean).requires_grad_();
      parameters.push_back({std::move(name), target});
    };
    const double spread = 1.0 / std::sqrt(static_cast<double>(hidden));
    make(weights.query, "query", {hidden, hidden}, 0, 1.5 * spread);
    make(weights.key, "key", {hidden, hidden}, 0, 1.5 * spread);
    make(weights.value, "value", {hidden, hidden}, 0, spread);
    if (wanted.projection_bias) {
      make(weights.query_bias, "query_bias", {hidden}, 0, 0.3);
      make(weights.key_bias, "key_bias", {hidden}, 0, 0.3);
      make(weights.value_bias, "value_bias", {hidden}, 0, 0.3);
    }
    make(weights.attention_output, "attention_output", {hidden, hidden}, 0, spread);
    make(weights.attention_output_bias, "attention_output_bias", {hidden}, 0, 0.3);
    make(weights.attention_norm, "attention_norm", {hidden}, 1, 0.2);
    make(weights.attention_norm_bias, "attention_norm_bias", {hidden}, 0, 0.2);
    make(weights.intermediate, "intermediate", {wanted.intermediate, hidden}, 0, spread);
    make(weights.intermediate_bias, "intermediate_bias", {wanted.intermediate}, 0, 0.3);
    make(weights.output, "output", {hidden, wanted.intermediate}, 0, spread);
    make(weights.output_bias, "output_bias", {hidden}, 0, 0.3);
    make(weights.output_norm, "output_norm", {hidden}, 1, 0.2);
    make(weights.output_norm_bias, "output_norm_bias", {hidden}, 0, 0.2);
    options = {.layer = 5,
               .heads = wanted.heads,
               .hidden_dropout = wanted.dropout,
               .attention_dropout = wanted.dropout * 1.5,
               .layer_norm_eps = 1e-5,
               .activation = wanted.activation};
    x = at::randn({wanted.batch, wanted.tokens, hidden}, wanted.type);
    dy = at::randn({wanted.batch, wanted.tokens, hidden}, wanted.type);
    if (wanted.masked) {
      mask = at::ones({wanted.batch, 1, 1, wanted.tokens}, at::kBool);
      mask[0].narrow(-1, wanted.tokens / 2, wanted.tokens - wanted.tokens / 2).fill_(false);
      mask[1].select(-1, 1).fill_(false);
    }
    if (wanted.dropout > 0) dropout = DropoutStream{.seed = 3, .update = 11, .first_place = 40};
  }

  [[nodiscard]] Tensor drop(const Tensor& t, double p, DropoutSite site) const {
    return dropout ? finetune::dropout(t, p, *dropout, options.layer, site) : t;
  }

  // The layer's equations, in torch's operators alone.
  [[nodiscard]] Tensor equations(const Tensor& input) const {
    const auto bias = [](const Tensor& t) {
      return t.defined() ? std::optional<Tensor>(t) : std::nullopt;
    };
    const auto by_head = [&](const Tensor& weight, const Tensor& b) {
      return at::linear(input, weight, bias(b)).unflatten(-1, {options.heads, -1}).transpose(1, 2);
    };
    const Tensor query = by_head(weights.query, weights.query_bias);
    Tensor scores = query.matmul(by_head(weights.key, weights.key_bias).transpose(-1, -2)) /
                    std::sqrt(static_cast<double>(query.size(-1)));
    if (mask.defined()) {
      scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
    }
    const Tensor context =
        drop(scores.softmax(-1), options.attention_dropout, DropoutSite::kAttentionProbabilities)
            .matmul(by_head(weights.value, weights.value_bias))
            .transpose(1, 2)
            .flatten(2);
    const auto norm = [&](const Tensor& t, const Tensor& gamma, const Tensor& beta) {
      return at::layer_norm(t, {t.size(-1)}, gamma, beta, options.layer_norm_eps);
    };
    const Tensor a = norm(
        input + drop(at::linear(context, weights.attention_output, weights.attention_output_bias),
                     options.hidden_dropout, DropoutSite::kAttentionOutput),
        weights.attention_norm, weights.attention_norm_bias);
    const Tensor h = at::linear(a, weights.intermediate, weights.intermediate_bias);
    const Tensor f = options.activation == nullptr ? at::gelu(h) : options.activation(h);
    return norm(a + drop(at::linear(f, weights.output, weights.output_bias), options.hidden_dropout,
                         DropoutSite::kFeedForwardOutput),
                weights.output_norm, weights.output_norm_bias);
  }

  [[nodiscard]] LayerGradients by_autograd() const {
    const Tensor input = x.detach().requires_grad_();
    const Tensor y = equations(input);
    std::vector<Tensor> inputs = {input};
    for (const NamedTensor& parameter : parameters) inputs.push_back(parameter.tensor);
    std::vector<Tensor> gradients = torch::autograd::grad({y}, inputs, {dy});
    return {.y = y.detach(),
            .dx = gradients.front(),
            .weights = {gradients.begin() + 1, gradients.end()}};
  }

  [[nodiscard]] LayerGradients by_hand(Precision precision = Precision::kFloat32,
                                       bool selective = false) const {
    const c10::NoGradGuard no_grad;
    ParameterStore store(parameters, WeightFormat::kFloat32, GradientFormat::kFloat32);
    const EncoderPass pass = {.parameters = store,
                              .mask = mask,
                              .dropout = dropout,
                              .precision = precision,
                              .selective = selective};
    const auto cast = [&](const Tensor& t) {
      return t.scalar_type() == at::kDouble ? t : t.to(scalar_type(precision));
    };
    EncoderLayerState state;
    const Tensor y = encoder_layer_forward(cast(x), weights, options, pass, &state);
    const Tensor dx = encoder_layer_backward(cast(dy).clone(), weights, options, pass, state);
    LayerGradients result = {.y = y, .dx = dx, .weights = {}};
    for (const Parameter& parameter : store.parameters()) {
      result.weights.push_back(parameter.gradient);
    }
    return result;
  }
};

// The largest difference, as a share of the largest expected value.
inline double difference(const Tensor& actual, const Tensor& expected) {
  const Tensor wanted = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
      .item<double>();
}

}  // namespace finetune
