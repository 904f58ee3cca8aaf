// SPDX-License-Identifier: MIT
#include "model/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <c10/core/GradMode.h>

#include "finetune/tensor/backward.h"

namespace finetune {
namespace {

std::optional<Tensor> optional(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt;
}

Tensor values_or_none(const ParameterStore& parameters, const Tensor& tensor) {
  return tensor.defined() ? parameters.values(tensor) : Tensor();
}

Tensor linear_backward(ParameterStore& parameters, const Tensor& gradient, const Tensor& x,
                       const Tensor& weight, const Tensor& bias) {
  const Tensor dy = gradient.reshape({-1, gradient.size(-1)});
  const Tensor dx = dy.mm(parameters.values(weight)).view(x.sizes());
  parameters.add_product(weight, dy, x);
  if (bias.defined()) parameters.add(bias, dy.sum(0));
  parameters.complete({weight, bias});
  return dx;
}

Tensor stored_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                         const ForwardContext& context) {
  ParameterStore& parameters = *context.parameters;
  Tensor y, mean, deviation;
  {
    const c10::NoGradGuard no_grad;
    std::tie(y, mean, deviation) = at::native_layer_norm(x, {x.size(-1)}, parameters.values(weight),
                                                         parameters.values(bias), epsilon);
  }
  return attach_backward(y, {x, parameters.anchor()},
                         [&parameters, x = x.detach(), weight, bias, mean = mean,
                          deviation = deviation](const Tensor& gradient) -> std::vector<Tensor> {
                           const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
                               gradient.contiguous(), x, {x.size(-1)}, mean, deviation,
                               parameters.values(weight), parameters.values(bias),
                               {true, true, true});
                           parameters.add(weight, dweight);
                           parameters.add(bias, dbias);
                           parameters.complete({weight, bias});
                           return {dx, Tensor()};
                         });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const ForwardContext& context) {
  if (context.parameters == nullptr) return at::linear(x, weight, optional(bias));
  ParameterStore& parameters = *context.parameters;
  Tensor y;
  {
    const c10::NoGradGuard no_grad;
    y = at::linear(x, parameters.values(weight), optional(values_or_none(parameters, bias)));
  }
  return attach_backward(
      y, {x, parameters.anchor()},
      [&parameters, x = x.detach(), weight, bias](const Tensor& gradient) -> std::vector<Tensor> {
        return {linear_backward(parameters, gradient, x, weight, bias), Tensor()};
      });
}

LinearImpl::LinearImpl(int64_t inputs, int64_t outputs, bool has_bias)
    : weight(register_parameter("weight", at::empty({outputs, inputs}))) {
  if (has_bias) bias = register_parameter("bias", at::empty({outputs}));
}

Tensor LinearImpl::forward(const Tensor& x, const ForwardContext& context) const {
  return linear(x, weight, bias, context);
}

LayerNormImpl::LayerNormImpl(const ModelConfig& config)
    : weight(register_parameter("weight", at::empty({config.hidden_size}))),
      bias(register_parameter("bias", at::empty({config.hidden_size}))),
      epsilon_(config.layer_norm_eps) {}

Tensor LayerNormImpl::forward(const Tensor& x, const ForwardContext& context) const {
  if (context.parameters == nullptr) {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon_);
  }
  return stored_layer_norm(x, weight, bias, epsilon_, context);
}

EmbeddingImpl::EmbeddingImpl(int64_t rows, int64_t columns)
    : weight(register_parameter("weight", at::empty({rows, columns}))) {}

Tensor EmbeddingImpl::forward(const Tensor& ids, const ForwardContext& context,
                              int64_t padding_id) const {
  if (context.parameters == nullptr) return at::embedding(weight, ids, padding_id);
  ParameterStore& parameters = *context.parameters;
  Tensor rows;
  {
    const c10::NoGradGuard no_grad;
    rows = parameters.gather_rows(weight, ids);
  }
  return attach_backward(rows, {parameters.anchor()},
                         [&parameters, ids, padding_id,
                          weight = weight](const Tensor& gradient) -> std::vector<Tensor> {
                           parameters.add_to_indexed_rows(
                               weight, ids, gradient.reshape({-1, gradient.size(-1)}), padding_id);
                           parameters.complete({weight});
                           return {Tensor()};
                         });
}

}  // namespace finetune
