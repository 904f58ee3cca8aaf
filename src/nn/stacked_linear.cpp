// SPDX-License-Identifier: MIT
#include "finetune/nn/stacked_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <utility>
#include <vector>

#include "finetune/kernels/kernels_in_use.h"

namespace finetune::nn {
namespace {

std::vector<int64_t> sizes_of(const StackOptions& o) {
  if (o.is_transposed) return {o.count, o.inputs, o.outputs};
  return {o.count, o.outputs, o.inputs};
}

}  // namespace

StackedLinear::StackedLinear(const Scope& scope, const std::string& name,
                             const StackOptions& options)
    : options_(options),
      weight_(scope.parameter(name, sizes_of(options), ParameterRole::kStackedLinear)) {
  if (options.has_bias) bias_ = scope.parameter(name + kBias, {options.count, options.outputs});
}

Tensor StackedLinear::matrix(int64_t number, const Pass& p) const {
  const ParameterStore& parameters = *p.options().parameters;
  const bool is_held = is_asynchronous(parameters.tensor(weight_).device()) &&
                       traits_of(parameters.at(weight_).format.weight).unpack == nullptr;
  const Tensor own = is_held ? p.factor(weight_).select(0, number)
                             : parameters.values_of_rows(weight_, number, 1).squeeze(0);
  return options_.is_transposed ? own.t() : own;
}

void StackedLinear::adapt(const Scope& module, const LoraSettings& settings) {
  rank_ = settings.r;
  lora_ = module.lora_of_stack(settings, options_.count, options_.inputs, options_.outputs);
}

Tensor StackedLinear::lora_a(int64_t number, const Pass& p) const {
  return p.factor(lora_->a).narrow(0, number * rank_, rank_);
}

Tensor StackedLinear::lora_b(int64_t number, const Pass& p) const {
  const Tensor all = p.factor(lora_->b).view({options_.outputs, rank_, options_.count});
  return all.select(2, number).contiguous();
}

Value StackedLinear::plain(const Value& x, int64_t number, const Pass& p) const {
  const Tensor own = p.leaf(weight_).select(0, number);
  const auto bias =
      bias_.defined() ? std::optional<Tensor>(p.leaf(bias_).select(0, number)) : std::nullopt;
  const Tensor y = at::linear(x.tensor, options_.is_transposed ? own.t() : own, bias);
  if (!lora_ || p.options().without_adapter) return {.tensor = y};
  const Tensor a = p.leaf(lora_->a).narrow(0, number * rank_, rank_);
  const Tensor b =
      p.leaf(lora_->b).view({options_.outputs, rank_, options_.count}).select(2, number);
  return {.tensor = y + lora_->scale * at::linear(at::linear(x.tensor, a), b)};
}

// Adds s x A_e^T B_e^T to y. Returns s x A_e^T.
Tensor StackedLinear::add_adapter(const Tensor& x, const Tensor& y, int64_t number,
                                  const Pass& p) const {
  const Precision precision = p.options().precision;
  const Tensor low = linear_in(precision, x, lora_a(number, p), Tensor()).mul_(lora_->scale);
  product_into(precision, y, low, lora_b(number, p).t(), 1.0);
  return low;
}

// dW = dy^T x, in the order of the stored matrix; db = sum of dy over rows.
void StackedLinear::give_weights(const Tensor& x, int64_t number, const Tensor& dy, Pass& p) const {
  if (p.trains(weight_)) {
    const bool turns = options_.is_transposed;
    p.add_product_to_slice(weight_, number, turns ? x : dy, turns ? dy : x);
  }
  if (p.trains(bias_)) {
    const Tensor index = at::full({1}, number, dy.options().dtype(at::kLong));
    const Tensor sum = dy.sum(/*dim=*/0, /*keepdim=*/true, at::kFloat);
    p.add_to_rows(bias_, index, sum, /*skipped=*/-1);
  }
}

// dx = dy W; of the adapter dB_e = dy^T low, dA_e = (s dy B_e)^T x and dx += s dy B_e A_e.
void StackedLinear::give_gradients(const Back& back, const Tensor& x, const Tensor& dy,
                                   Pass& p) const {
  const Precision precision = p.options().precision;
  give_weights(x, back.number, dy, p);
  Tensor d_low;
  if (back.low.defined()) {
    d_low = product_in(precision, dy, lora_b(back.number, p)).mul_(lora_->scale);
    if (p.trains(lora_->a)) {
      p.add_product_to_rows(lora_->a, back.number * rank_, d_low, x);
    }
    if (p.trains(lora_->b)) {
      Tensor& all = *back.of_b;
      if (!all.defined()) {
        all = at::zeros({options_.outputs, rank_, options_.count}, dy.options().dtype(at::kFloat));
      }
      all.select(2, back.number).copy_(at::mm(dy.to(at::kFloat).t(), back.low.to(at::kFloat)));
    }
  }
  if (back.dx) {
    const Tensor spare = back.dx->has_gradient() ? Tensor() : at::empty(back.shape, back.options);
    back.dx->give_product(precision, dy, matrix(back.number, p), spare);
    if (d_low.defined()) back.dx->give_product(precision, d_low, lora_a(back.number, p), Tensor());
  }
  if (!back.completes) return;
  p.complete({weight_, bias_});
  if (!back.low.defined()) return;
  if (back.of_b->defined()) p.add(lora_->b, back.of_b->flatten(1));
  p.complete({lora_->a, lora_->b});
}

Value StackedLinear::operator()(Value x, int64_t number, Calls& calls, Pass& p) const {
  if (p.is_plain()) return plain(x, number, p);
  const bool has_adapter = lora_ && !p.options().without_adapter;
  const bool trains_adapter = has_adapter && (p.trains(lora_->a) || p.trains(lora_->b));
  const bool keeps = p.trains(weight_) || trains_adapter;
  const Tensor bias = bias_.defined() ? p.values(bias_).select(0, number) : Tensor();
  Value y = p.result(linear_in(p.options().precision, x.tensor, matrix(number, p), bias),
                     keeps || p.trains(bias_) || x.slot);
  Back back = {.number = number,
               .completes = !std::exchange(calls.has_any_, true),
               .shape = x.tensor.sizes().vec(),
               .options = x.tensor.options(),
               .dx = x.slot,
               .low = {},
               .of_b = calls.of_b_};
  if (has_adapter) back.low = add_adapter(x.tensor, y.tensor, number, p);
  if (!y.slot) return y;
  if (!keeps) x = {};
  p.record(y, [this, &p, back = std::move(back), kept = p.keep(std::move(x))](
                  const Tensor& dy) mutable { give_gradients(back, kept.take(), dy, p); });
  return y;
}

}  // namespace finetune::nn
