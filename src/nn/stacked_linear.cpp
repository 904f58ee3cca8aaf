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

StackedAdapter::StackedAdapter(const Scope& module, const LoraSettings& settings,
                               const StackOptions& options)
    : count_(options.count),
      outputs_(options.outputs),
      rank_(settings.r),
      lora_(module.lora_of_stack(settings, options.count, options.inputs, options.outputs)) {}

Tensor StackedAdapter::a(int64_t number, const Pass& p) const {
  return p.factor(lora_.a).narrow(0, number * rank_, rank_);
}

Tensor StackedAdapter::b(int64_t number, const Pass& p) const {
  const Tensor all = p.factor(lora_.b).view({outputs_, rank_, count_});
  return all.select(2, number).contiguous();
}

Tensor StackedAdapter::plain(const Tensor& x, int64_t number, const Pass& p) const {
  const Tensor own_a = p.leaf(lora_.a).narrow(0, number * rank_, rank_);
  const Tensor own_b = p.leaf(lora_.b).view({outputs_, rank_, count_}).select(2, number);
  return lora_.scale * at::linear(at::linear(x, own_a), own_b);
}

Tensor StackedAdapter::low(const Tensor& x, int64_t number, const Pass& p) const {
  return linear_in(p.options().precision, x, a(number, p), Tensor()).mul_(lora_.scale);
}

void StackedAdapter::give(const Call& call, const Tensor& x, const Tensor& dy, Slot* dx,
                          const Tensor& spare, Pass& p) const {
  const Precision precision = p.options().precision;
  const Tensor d_low = product_in(precision, dy, b(call.number, p)).mul_(lora_.scale);
  if (p.trains(lora_.a)) p.add_product_to_rows(lora_.a, call.number * rank_, d_low, x);
  if (p.trains(lora_.b)) {
    Tensor& all = *call.of_b;
    if (!all.defined()) {
      all = at::zeros({outputs_, rank_, count_}, dy.options().dtype(at::kFloat));
    }
    all.select(2, call.number).copy_(at::mm(dy.to(at::kFloat).t(), call.low.to(at::kFloat)));
  }
  if (dx != nullptr) dx->give_product(precision, d_low, a(call.number, p), spare);
}

void StackedAdapter::complete(const Call& call, Pass& p) const {
  if (call.of_b->defined()) p.add(lora_.b, call.of_b->flatten(1));
  p.complete({lora_.a, lora_.b});
}

Value StackedAdapter::operator()(Value x, int64_t number, Calls& calls, Pass& p) const {
  if (p.is_plain()) return {.tensor = plain(x.tensor, number, p)};
  Call call = {.number = number, .low = low(x.tensor, number, p), .of_b = calls.of_b_};
  const bool completes = !std::exchange(calls.has_any_, true);
  const bool keeps = trains(p);
  Value y =
      p.result(product_in(p.options().precision, call.low, b(number, p).t()), keeps || x.slot);
  if (!y.slot) return y;
  const std::vector<int64_t> shape = x.tensor.sizes().vec();
  const at::TensorOptions options = x.tensor.options();
  std::shared_ptr<Slot> dx = x.slot;
  if (!keeps) x = {};
  p.record(y, [this, &p, call = std::move(call), completes, shape, options, dx = std::move(dx),
               kept = p.keep(std::move(x))](const Tensor& dy) mutable {
    const bool is_first = dx && !dx->has_gradient();
    give(call, kept.take(), dy, dx.get(), is_first ? at::empty(shape, options) : Tensor(), p);
    if (completes) complete(call, p);
  });
  return y;
}

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
  adapter_.emplace(module, settings, options_);
}

Value StackedLinear::plain(const Value& x, int64_t number, const Pass& p) const {
  const Tensor own = p.leaf(weight_).select(0, number);
  const auto bias =
      bias_.defined() ? std::optional<Tensor>(p.leaf(bias_).select(0, number)) : std::nullopt;
  const Tensor y = at::linear(x.tensor, options_.is_transposed ? own.t() : own, bias);
  if (!adapter_ || p.options().without_adapter) return {.tensor = y};
  return {.tensor = y + adapter_->plain(x.tensor, number, p)};
}

// dW = dy^T x, in the order of the stored matrix; db = sum of dy over rows.
void StackedLinear::give_weights(const Tensor& x, int64_t number, const Tensor& dy, Pass& p) const {
  if (p.trains(weight_)) {
    const bool turns = options_.is_transposed;
    p.add_product_to_rows(weight_, number * weight_.size(1), turns ? x : dy, turns ? dy : x);
  }
  if (p.trains(bias_)) {
    const Tensor index = at::full({1}, number, dy.options().dtype(at::kLong));
    const Tensor sum = dy.sum(/*dim=*/0, /*keepdim=*/true, at::kFloat);
    p.add_to_rows(bias_, index, sum, /*skipped=*/-1);
  }
}

// dx = dy W, and the adapter's.
void StackedLinear::give_gradients(const Back& back, const Tensor& x, const Tensor& dy,
                                   Pass& p) const {
  const int64_t number = back.call.number;
  give_weights(x, number, dy, p);
  if (back.dx) {
    const Tensor spare = back.dx->has_gradient() ? Tensor() : at::empty(back.shape, back.options);
    back.dx->give_product(p.options().precision, dy, matrix(number, p), spare);
  }
  const bool has_adapter = back.call.low.defined();
  if (has_adapter) adapter_->give(back.call, x, dy, back.dx.get(), Tensor(), p);
  if (!back.completes) return;
  p.complete({weight_, bias_});
  if (has_adapter) adapter_->complete(back.call, p);
}

Value StackedLinear::operator()(Value x, int64_t number, Calls& calls, Pass& p) const {
  if (p.is_plain()) return plain(x, number, p);
  const Precision precision = p.options().precision;
  const bool has_adapter = adapter_ && !p.options().without_adapter;
  const bool keeps = p.trains(weight_) || (has_adapter && adapter_->trains(p));
  const Tensor bias = bias_.defined() ? p.values(bias_).select(0, number) : Tensor();
  Value y = p.result(linear_in(precision, x.tensor, matrix(number, p), bias),
                     keeps || p.trains(bias_) || x.slot);
  Back back = {.call = {.number = number, .low = {}, .of_b = calls.of_b_},
               .completes = !std::exchange(calls.has_any_, true),
               .shape = x.tensor.sizes().vec(),
               .options = x.tensor.options(),
               .dx = x.slot};
  if (has_adapter) {
    back.call.low = adapter_->low(x.tensor, number, p);
    product_into(precision, y.tensor, back.call.low, adapter_->b(number, p).t(), 1.0);
  }
  if (!y.slot) return y;
  if (!keeps) x = {};
  p.record(y, [this, &p, back = std::move(back), kept = p.keep(std::move(x))](
                  const Tensor& dy) mutable { give_gradients(back, kept.take(), dy, p); });
  return y;
}

}  // namespace finetune::nn
