// SPDX-License-Identifier: MIT
#include "finetune/nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rsqrt.h>

#include <tuple>
#include <vector>

#include "finetune/nn/elementwise.h"

namespace finetune::nn {
LayerNorm::LayerNorm(const Scope& scope, int64_t size, double epsilon, bool has_bias)
    : weight_(scope.parameter("weight", {size})), epsilon_(epsilon) {
  if (has_bias) bias_ = scope.parameter("bias", {size});
}

// With u = (x - mean) / sd and g = dy w: dx = (g - mean(g) - u mean(g u)) / sd, dw = sum(dy u),
// db = sum(dy).
Value LayerNorm::operator()(const Value& x, Pass& p) const {
  if (p.is_plain()) {
    return {.tensor = at::layer_norm(x.tensor, {x.tensor.size(-1)}, p.leaf(weight_), p.leaf(bias_),
                                     epsilon_)};
  }
  const auto [normed, mean, deviation] = at::native_layer_norm(
      x.tensor, {x.tensor.size(-1)}, p.values(weight_), p.values(bias_), epsilon_);
  const bool has_trained_weight = p.trains(weight_);
  const bool has_trained_bias = p.trains(bias_);
  const Value y = p.result(normed, has_trained_weight || has_trained_bias || x.slot);
  p.record(y, [&p, weight = weight_, bias = bias_, dx = x.slot, input = x.tensor, mean = mean,
               deviation = deviation, has_trained_weight, has_trained_bias](const Tensor& dy) {
    // Without its input's gradient the lowest norm computes it all the same, as it always did.
    const auto [gradient, of_weight, of_bias] = at::native_layer_norm_backward(
        dy.contiguous(), input, {input.size(-1)}, mean, deviation, p.values(weight), p.values(bias),
        {true, has_trained_weight, has_trained_bias});
    give(dx, gradient);
    if (has_trained_weight) p.add(weight, of_weight);
    if (has_trained_bias) p.add(bias, of_bias);
    p.complete({weight, bias});
  });
  return y;
}

RmsNorm::RmsNorm(const Scope& scope, int64_t size, double epsilon, bool adds_one)
    : weight_(scope.parameter("weight", {size})), epsilon_(epsilon), adds_one_(adds_one) {}

// By ATen's operators, which autograd differentiates.
Tensor RmsNorm::plainly(const Tensor& x, const Tensor& weight) const {
  const Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const Tensor unit = wide * at::rsqrt(wide.square().mean(-1, true) + epsilon_);
  if (!weight.defined()) return unit.to(x.scalar_type());
  return (unit * (adds_one_ ? weight + 1.0 : weight)).to(x.scalar_type());
}

kernels::RmsNorm RmsNorm::options(const Tensor& x, const Pass& p) const {
  Tensor weight = p.values(weight_);
  if (!weight.defined()) weight = at::ones({x.size(-1)}, x.options().dtype(at::kFloat));
  return {.weight = std::move(weight), .epsilon = epsilon_, .adds_one = adds_one_};
}

Value RmsNorm::operator()(const Value& x, Pass& p) const {
  if (p.is_plain()) return {.tensor = plainly(x.tensor, p.leaf(weight_))};
  const at::ScalarType type = scalar_type(p.options().precision);
  return record(kernels::fused_rms_norm(x.tensor, options(x.tensor, p), type), x, nullptr, p);
}

// The gradient of the sum is that of both terms. The norm is the last that adds to it, so its
// kernel can also round it to the branch's type.
RmsNorm::OfSum RmsNorm::of_sum(const Residual& all, Pass& p) const {
  const auto& [x, branch] = all;
  if (p.is_plain() || !branch.tensor.defined()) {
    const Value sum = whole(all, p);
    return {.sum = sum, .normed = (*this)(sum, p)};
  }
  const at::ScalarType type = scalar_type(p.options().precision);
  const at::ScalarType of_x = x.tensor.scalar_type();
  const at::ScalarType of_branch = branch.tensor.scalar_type();
  kernels::SumAndNorm made =
      kernels::fused_add_rms_norm(x.tensor, branch.tensor, options(x.tensor, p), type);
  const Value sum = p.result(std::move(made.sum), x.slot || branch.slot);
  const auto rounded = of_branch == type ? std::make_shared<Tensor>() : nullptr;
  p.record(sum, [dx = x.slot, d_branch = branch.slot, of_x, of_branch, rounded](const Tensor& ds) {
    give(d_branch, rounded && rounded->defined() ? std::move(*rounded) : ds.to(of_branch));
    give(dx, ds.to(of_x));
  });
  return {.sum = sum, .normed = record(std::move(made.normed), sum, rounded, p)};
}

Value RmsNorm::record(Tensor y, const Value& x, const std::shared_ptr<Tensor>& rounded,
                      Pass& p) const {
  const at::ScalarType type = y.scalar_type();
  const bool has_trained_weight = p.trains(weight_);
  Value result = p.result(std::move(y), has_trained_weight || x.slot);
  if (!result.slot) return result;
  result.rebuild = rebuilt_once(
      [this, &p, type, x = x.tensor] { return kernels::fused_rms_norm(x, options(x, p), type); });
  p.record(result, [this, &p, x = x.tensor, dx = x.slot, has_trained_weight,
                    rounded](Tensor gradient) {
    const Tensor dy = to_overwrite(std::move(gradient));
    Tensor of_weight;
    const auto backward = [&](const Tensor& sum) {
      const bool is_whole = rounded && dx && (sum.defined() || !dx->has_gradient());
      const auto gradients = kernels::fused_rms_norm_backward(dy, x, options(x, p), sum, is_whole);
      of_weight = gradients.weight;
      if (is_whole) *rounded = gradients.rounded;
      return gradients.input;
    };
    dx ? dx->give_sum(x.scalar_type(), backward) : (void)backward({});
    if (has_trained_weight) p.add(weight_, of_weight);
    p.complete({weight_});
  });
  return result;
}

AddAndNorm::AddAndNorm(const Scope& dense, const Scope& norm, int64_t inputs, int64_t size,
                       const ResidualOptions& options)
    : dense_(dense, inputs, size), norm_(norm, size, options.epsilon), options_(options) {}

// The fused kernel overwrites the product with s = residual + Dropout(product + bias). Its backward
// pass overwrites dy with ds, the residual's gradient, and with dropout s with the product's.
Value AddAndNorm::operator()(Value x, const Value& residual, Pass& p) const {
  if (p.is_plain()) {
    const Value dropped =
        dropout(dense_(std::move(x), p), {options_.dropout, options_.layer, options_.site}, p);
    return norm_(add({residual, dropped}, p), p);
  }
  const auto norm = [this, &p]() -> kernels::RowNorm {
    return {.gamma = p.values(norm_.weight()),
            .beta = p.values(norm_.bias()),
            .epsilon = options_.epsilon,
            .dropout = options_.dropout,
            .layer = options_.layer,
            .site = options_.site};
  };
  Value product = dense_.product(std::move(x), p);
  const Tensor sums = to_overwrite(std::exchange(product.tensor, {}));
  const bool has_trained_weight = p.trains(norm_.weight()) || p.trains(norm_.bias());
  const bool has_trained_bias = p.trains(dense_.bias());
  Value y = p.result(kernels::fused_add_norm(sums, p.values(dense_.bias()), residual.tensor, norm(),
                                             p.inputs_of(sums)),
                     has_trained_weight || has_trained_bias || product.slot || residual.slot);
  if (!y.slot) return y;
  if (p.options().checkpointing.keeps_products())
    y.rebuild = [&p, norm, sums] { return kernels::fused_norm(sums, norm(), p.inputs_of(sums)); };
  p.record(y, [this, &p, norm, inputs = p.inputs_of(sums), sums = sums, of_product = product.slot,
               of_residual = residual.slot](Tensor gradient) mutable {
    const Tensor dy = to_overwrite(std::move(gradient));
    const kernels::RowNormGradients gradients =
        kernels::fused_add_norm_backward(dy, to_overwrite(std::exchange(sums, {})), norm(), inputs);
    p.add(norm_.weight(), gradients.gamma);
    p.add(norm_.bias(), gradients.beta);
    p.add(dense_.bias(), gradients.bias);
    give(of_product, gradients.product);
    give(of_residual, dy);
    p.complete({norm_.weight(), norm_.bias(), dense_.bias()});
  });
  return y;
}

}  // namespace finetune::nn
