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

#include "finetune/nn/attention.h"
#include "finetune/nn/feed_forward.h"
#include "finetune/nn/norm.h"

namespace finetune {

// A layer with random weights, and its gradients by autograd.
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

  [[nodiscard]] int64_t hidden() const { return heads * head_size; }
};

struct LayerGradients {
  Tensor y, dx;
  std::vector<Tensor> weights;  // in the order of RandomLayer::parameters
};

// BERT's layer, as in src/model/bert.h.
struct PostNormLayer {
  nn::AttentionOptions attention;
  nn::Linear query, key, value;
  nn::AddAndNorm attention_output;
  nn::DenseActivation intermediate;
  nn::AddAndNorm output;

  PostNormLayer(const nn::Scope& scope, const LayerCase& wanted)
      : attention{.heads = wanted.heads, .layer = 5, .dropout = wanted.dropout * 1.5},
        query(scope / "query", wanted.hidden(), wanted.hidden(), wanted.projection_bias),
        key(scope / "key", wanted.hidden(), wanted.hidden(), wanted.projection_bias),
        value(scope / "value", wanted.hidden(), wanted.hidden(), wanted.projection_bias),
        attention_output(scope / "attention_output" / "dense",
                         scope / "attention_output" / "LayerNorm", wanted.hidden(), wanted.hidden(),
                         options(wanted, DropoutSite::kAttentionOutput)),
        intermediate(scope / "intermediate" / "dense", wanted.hidden(), wanted.intermediate,
                     wanted.activation),
        output(scope / "output" / "dense", scope / "output" / "LayerNorm", wanted.intermediate,
               wanted.hidden(), options(wanted, DropoutSite::kFeedForwardOutput)) {}

  nn::Value operator()(const nn::Value& x, nn::Pass& p) const {
    const nn::Value h = attention_output(
        attend({.value = value(x, p), .key = key(x, p), .query = query(x, p)}, attention, p), x, p);
    return output(intermediate(h, p), h, p);
  }

 private:
  static nn::ResidualOptions options(const LayerCase& wanted, DropoutSite site) {
    return {.epsilon = 1e-5, .dropout = wanted.dropout, .layer = 5, .site = site};
  }
};

struct RandomLayer {
  LayerCase wanted;
  Weights parameters;
  std::vector<Tensor> values;  // of the parameters
  PostNormLayer layer;
  Tensor x, dy, mask;
  std::optional<DropoutStream> dropout;

  explicit RandomLayer(const LayerCase& layer_case)
      : wanted(layer_case), layer(nn::Scope(parameters), wanted) {
    at::manual_seed(17);
    const double spread = 1.0 / std::sqrt(static_cast<double>(wanted.hidden()));
    for (const Weight& parameter : parameters) {
      const bool is_norm = parameter.name().find("LayerNorm") != std::string::npos;
      const bool is_bias = parameter.name().ends_with("bias");
      const bool is_sharp = parameter.name() == "query.weight" || parameter.name() == "key.weight";
      double mean = 0.0;
      double deviation = is_sharp ? 1.5 * spread : spread;
      if (is_bias) deviation = 0.3;
      if (is_norm) deviation = 0.2;
      if (is_norm && !is_bias) mean = 1.0;
      values.push_back(
          (at::randn(parameter.sizes(), wanted.type) * deviation + mean).set_requires_grad(true));
    }
    x = at::randn({wanted.batch, wanted.tokens, wanted.hidden()}, wanted.type);
    dy = at::randn({wanted.batch, wanted.tokens, wanted.hidden()}, wanted.type);
    if (wanted.masked) {
      mask = at::ones({wanted.batch, 1, 1, wanted.tokens}, at::kBool);
      mask[0].narrow(-1, wanted.tokens / 2, wanted.tokens - wanted.tokens / 2).fill_(false);
      mask[1].select(-1, 1).fill_(false);
    }
    if (wanted.dropout > 0) dropout = DropoutStream{.seed = 3, .update = 11, .first_position = 40};
  }

  [[nodiscard]] Tensor weight(const std::string& name) const {
    for (const Weight& parameter : parameters) {
      if (parameter.name() == name) return values[parameter.id()];
    }
    return {};
  }

  [[nodiscard]] Tensor drop(const Tensor& t, double p, DropoutSite site) const {
    return dropout ? finetune::dropout(t, p, *dropout, 5, site) : t;
  }

  // The layer's equations with torch's operators only.
  [[nodiscard]] Tensor equations(const Tensor& input) const {
    const auto linear = [&](const Tensor& t, const std::string& name) {
      const Tensor bias = weight(name + ".bias");
      return at::linear(t, weight(name + ".weight"),
                        bias.defined() ? std::optional<Tensor>(bias) : std::nullopt);
    };
    const auto by_head = [&](const std::string& name) {
      return linear(input, name).unflatten(-1, {wanted.heads, -1}).transpose(1, 2);
    };
    const auto add_and_norm = [&](const Tensor& t, const Tensor& residual, const std::string& name,
                                  DropoutSite site) {
      const Tensor sum = residual + drop(linear(t, name + ".dense"), wanted.dropout, site);
      return at::layer_norm(sum, {sum.size(-1)}, weight(name + ".LayerNorm.weight"),
                            weight(name + ".LayerNorm.bias"), 1e-5);
    };
    const Tensor query = by_head("query");
    Tensor scores = query.matmul(by_head("key").transpose(-1, -2)) /
                    std::sqrt(static_cast<double>(query.size(-1)));
    if (mask.defined()) {
      scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
    }
    const Tensor context =
        drop(scores.softmax(-1), wanted.dropout * 1.5, DropoutSite::kAttentionProbabilities)
            .matmul(by_head("value"))
            .transpose(1, 2)
            .flatten(2);
    const Tensor a =
        add_and_norm(context, input, "attention_output", DropoutSite::kAttentionOutput);
    const Tensor h = linear(a, "intermediate.dense");
    const Tensor f = wanted.activation == nullptr ? at::gelu(h) : wanted.activation(h);
    return add_and_norm(f, a, "output", DropoutSite::kFeedForwardOutput);
  }

  [[nodiscard]] LayerGradients by_autograd() const {
    const Tensor input = x.detach().requires_grad_();
    return gradients_of(equations(input), input);
  }

  // The same equations in the reference mode.
  [[nodiscard]] LayerGradients by_plain_mode() const {
    const Tensor input = x.detach().requires_grad_();
    const std::unique_ptr<ParameterStore> store = make_store();
    nn::Pass pass(nn::Mode::kPlain,
                  {.parameters = store.get(), .inputs = {.mask = mask, .dropout = dropout}});
    return gradients_of(layer({.tensor = input}, pass).tensor, input);
  }

  [[nodiscard]] LayerGradients gradients_of(const Tensor& y, const Tensor& input) const {
    std::vector<Tensor> inputs = {input};
    inputs.insert(inputs.end(), values.begin(), values.end());
    std::vector<Tensor> gradients = torch::autograd::grad({y}, inputs, {dy});
    return {.y = y.detach(),
            .dx = gradients.front(),
            .weights = {gradients.begin() + 1, gradients.end()}};
  }

  // With float32 weights on the memory of `values`.
  [[nodiscard]] std::unique_ptr<ParameterStore> make_store(
      WeightFormat format = WeightFormat::kFloat32) const {
    return std::make_unique<ParameterStore>(parameters, values, format, GradientFormat::kFloat32);
  }

  [[nodiscard]] nn::PassOptions options(ParameterStore& store,
                                        Precision precision = Precision::kFloat32,
                                        bool selective = false) const {
    return {.parameters = &store,
            .inputs = {.mask = mask, .dropout = dropout},
            .precision = precision,
            .checkpointing = {.enabled = selective, .selective = selective}};
  }

  // Runs on the tape; gradients are in `store`.
  [[nodiscard]] LayerGradients train(ParameterStore& store, const nn::PassOptions& options) const {
    const c10::NoGradGuard no_grad;
    const auto cast = [&](const Tensor& t) {
      return t.scalar_type() == at::kDouble ? t : t.to(scalar_type(options.precision));
    };
    nn::Pass pass(nn::Mode::kTrain, options);
    const nn::Value input = pass.result(cast(x), true);
    nn::Value y = layer(input, pass);
    y.rebuild = {};
    pass.backward(y, cast(dy).clone());
    LayerGradients result = {.y = y.tensor, .dx = input.slot->take(), .weights = {}};
    for (const Parameter& parameter : store.parameters()) {
      result.weights.push_back(parameter.gradient);
    }
    return result;
  }

  [[nodiscard]] LayerGradients by_hand(Precision precision = Precision::kFloat32,
                                       bool selective = false) const {
    const std::unique_ptr<ParameterStore> store = make_store();
    return train(*store, options(*store, precision, selective));
  }
};

// Returns the largest difference relative to the largest expected value.
inline double difference(const Tensor& actual, const Tensor& expected) {
  const Tensor wanted = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30))
      .item<double>();
}

}  // namespace finetune
