// SPDX-License-Identifier: MIT
#include "finetune/nn/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <optional>

namespace finetune::nn {
namespace {

Tensor sum_of_rows(const Tensor& dy) {
  return dy.sum(0, false, dy.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// What the gradient of x is written into: x, or memory like it.
Tensor memory_like(Tensor x) { return owns_memory(x) ? x : at::empty(x.sizes(), x.options()); }

}  // namespace

Value linear(Value x, const Tensor& weight, const Tensor& bias, Pass& p) {
  if (p.is_plain()) {
    const auto added = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
    return {.tensor = at::linear(x.tensor, weight, added)};
  }
  std::vector<int64_t> sizes = x.tensor.sizes().vec();
  sizes.back() = weight.size(0);
  const Value y =
      p.result(linear_in(p.options().precision, rows_of(x.tensor), p.values(weight), p.values(bias))
                   .view(sizes));
  if (!p.records()) {
    x = {};  // frees a temporary before its full expression ends
    return y;
  }
  const std::shared_ptr<Slot> dx = x.slot;
  p.record(y, [&p, weight, bias, dx, kept = p.keep(std::move(x))](const Tensor& gradient) mutable {
    const Tensor dy = rows_of(gradient);
    Tensor input = kept.take();
    if (bias.defined()) p.add(bias, sum_of_rows(dy));
    p.add_product(weight, dy, rows_of(input));
    if (dx) {
      const Tensor spare = dx->has_gradient() ? Tensor() : memory_like(std::move(input));
      dx->give_product(p.options().precision, dy, p.values(weight), spare);
    }
    p.complete({weight, bias});
  });
  return y;
}

Linear::Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias)
    : weight_(scope.parameter("weight", {outputs, inputs})) {
  if (has_bias) bias_ = scope.parameter("bias", {outputs});
}

}  // namespace finetune::nn
