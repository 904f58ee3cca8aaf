// SPDX-License-Identifier: MIT
#include "finetune/nn/stacked_linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>

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

// dW = dy^T x, in the order of the stored matrix; db = sum of dy over rows.
void StackedLinear::give_gradients(const Tensor& x, int64_t number, const Tensor& dy,
                                   Pass& p) const {
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

Value StackedLinear::operator()(Value x, int64_t number, bool completes, Pass& p) const {
  if (p.is_plain()) {
    const Tensor own = p.leaf(weight_).select(0, number);
    const auto bias =
        bias_.defined() ? std::optional<Tensor>(p.leaf(bias_).select(0, number)) : std::nullopt;
    return {.tensor = at::linear(x.tensor, options_.is_transposed ? own.t() : own, bias)};
  }
  const Precision precision = p.options().precision;
  const Tensor bias = bias_.defined() ? p.values(bias_).select(0, number) : Tensor();
  const bool keeps = p.trains(weight_);
  Value y = p.result(linear_in(precision, x.tensor, matrix(number, p), bias),
                     keeps || p.trains(bias_) || x.slot);
  if (!y.slot) return y;
  const std::vector<int64_t> shape = x.tensor.sizes().vec();
  const at::TensorOptions options = x.tensor.options();
  std::shared_ptr<Slot> dx = x.slot;
  if (!keeps) x = {};
  p.record(y, [this, &p, number, completes, shape, options, dx = std::move(dx),
               kept = p.keep(std::move(x))](const Tensor& dy) mutable {
    give_gradients(kept.take(), number, dy, p);
    if (dx) {
      const Tensor spare = dx->has_gradient() ? Tensor() : at::empty(shape, options);
      dx->give_product(p.options().precision, dy, matrix(number, p), spare);
    }
    if (completes) p.complete({weight_, bias_});
  });
  return y;
}

}  // namespace finetune::nn
