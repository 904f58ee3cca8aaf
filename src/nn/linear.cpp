// SPDX-License-Identifier: MIT
#include "finetune/nn/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>
#include <optional>

namespace finetune::nn {
namespace {

// What the gradient of x is written into: x, if it was kept and nothing else refers to it.
Tensor memory_for(Tensor x, at::IntArrayRef shape, const at::TensorOptions& options) {
  return x.defined() && owns_memory(x) ? x : at::empty(shape, options);
}

// The matrix of a product, [out, in]: the parameter, or its transpose.
struct Matrix {
  Weight weight;
  bool is_transposed;

  [[nodiscard]] Tensor of(const Tensor& values) const {
    return is_transposed ? values.t() : values;
  }
};

// y = x W^T + b. Backward: db = sum of dy over rows, dW = dy^T x, dx = dy W.
Value product_with(const Matrix& matrix, const Weight& bias, Value x, Pass& p,
                   bool completes = true) {
  const Weight& weight = matrix.weight;
  if (p.is_plain()) {
    const auto added = bias.defined() ? std::optional<Tensor>(p.leaf(bias)) : std::nullopt;
    return {.tensor = at::linear(x.tensor, matrix.of(p.leaf(weight)), added)};
  }
  std::vector<int64_t> sizes = x.tensor.sizes().vec();
  sizes.back() = weight.size(matrix.is_transposed ? 1 : 0);
  const bool keeps_input = p.trains(weight);
  const bool needs_gradient = p.trains(bias) || keeps_input || x.slot;
  // A view keeps the tensor that it is of, also without gradients, and would not own its memory.
  const Value y = p.result(linear_in(p.options().precision, rows_of(x.tensor),
                                     matrix.of(p.factor(weight)), p.factor(bias))
                               .view(sizes)
                               .detach(),
                           needs_gradient);
  if (Scratch* scratch = p.scratch()) {
    scratch->matrix = std::max(scratch->matrix, weight.numel());
    const bool is_table = x.tensor.dim() == 2;  // shared by all rows
    const int64_t values = is_table ? 0 : x.tensor.numel() + y.tensor.numel();
    scratch->factors = std::max(scratch->factors, values);
    if (bias.defined() && completes) scratch->sums += bias.numel();
  }
  if (!y.slot) {
    x = {};  // frees a temporary before the caller's expression ends
    return y;
  }
  const std::shared_ptr<Slot> dx = x.slot;
  const at::TensorOptions options = x.tensor.options();
  std::vector<int64_t> shape = x.tensor.sizes().vec();
  if (!keeps_input) x = {};  // dx = dy W needs only its shape
  p.record(y, [&p, matrix, bias, dx, completes, keeps_input, options, shape = std::move(shape),
               kept = p.keep(std::move(x))](const Tensor& gradient) mutable {
    const Tensor dy = rows_of(gradient);
    Tensor input = kept.take();  // undefined if it was not kept
    if (p.trains(bias)) p.add_sum_of_rows(bias, dy);
    if (keeps_input && matrix.is_transposed) {
      p.add_product(matrix.weight, rows_of(input), dy);
    } else if (keeps_input) {
      p.add_product(matrix.weight, dy, rows_of(input));
    }
    if (dx) {
      const Tensor spare =
          dx->has_gradient() ? Tensor() : memory_for(std::move(input), shape, options);
      dx->give_product(p.options().precision, dy, matrix.of(p.factor(matrix.weight)), spare);
    }
    if (completes) p.complete({matrix.weight, bias});
  });
  return y;
}

}  // namespace

Value linear(Value x, const Weight& weight, const Weight& bias, Pass& p) {
  return product_with({weight, false}, bias, std::move(x), p);
}

Value Linear::again(Value x, Pass& p) const {
  return product_with({weight_, false}, bias_, std::move(x), p, false);
}

TransposedLinear::TransposedLinear(const Scope& scope, int64_t inputs, int64_t outputs)
    : weight_(scope.parameter("weight", {inputs, outputs})),
      bias_(scope.parameter("bias", {outputs})) {}

Value TransposedLinear::operator()(Value x, Pass& p) const {
  return product_with({weight_, true}, bias_, std::move(x), p);
}

Linear::Linear(const Scope& scope, int64_t inputs, int64_t outputs, bool has_bias)
    : weight_(scope.parameter("weight", {outputs, inputs})) {
  if (has_bias) bias_ = scope.parameter("bias", {outputs});
}

}  // namespace finetune::nn
