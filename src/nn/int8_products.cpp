// SPDX-License-Identifier: MIT
#include "finetune/nn/int8_products.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <string>
#include <utility>

#include "finetune/kernels/uint8_values.h"

namespace finetune::nn {

bool has_int8_codes(c10::IntArrayRef shape) {
  constexpr int64_t kFewRows = 16;
  return shape.size() == 2 && shape[0] >= kFewRows;
}

Tensor int8_scales(const Tensor& w) {
  const Tensor largest = w.abs().amax({1}, /*keepdim=*/true);
  return at::where(largest.gt(0), largest / 127.0, at::ones({1}, largest.options()));
}

Tensor int8_codes(const Tensor& w) {
  return (w / int8_scales(w)).round().clamp(-127, 127).to(at::kChar);
}

Tensor int8_rounded(const Tensor& w) { return int8_codes(w).to(at::kFloat) * int8_scales(w); }

namespace {

// oneDNN's products of integers; torch has no function for them.
std::optional<c10::OperatorHandle> onednn(const char* name) {
  return c10::Dispatcher::singleton().findSchema({std::string("onednn::") + name, ""});
}

bool has_integer_products() {
  static const bool kThere =
      onednn("qlinear_prepack").has_value() && onednn("qlinear_pointwise").has_value();
  return kThere && at::globalContext().hasMKLDNN();
}

}  // namespace

Int8Matrix int8_matrix(const Tensor& w) {
  const Tensor scales = int8_scales(w).squeeze(1);
  if (!w.is_cpu() || !has_integer_products()) {
    return {.codes = int8_rounded(w), .scales = scales};
  }
  torch::jit::Stack stack = {int8_codes(w), c10::IValue()};
  onednn("qlinear_prepack")->callBoxed(stack);
  return {.codes = stack.front().toTensor(), .scales = scales};
}

Tensor int8_linear(const Tensor& x, const Int8Matrix& matrix, const Tensor& bias) {
  const kernels::Uint8Values values = kernels::uint8_values(x.to(at::kCPU, at::kFloat));
  const auto added = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  if (matrix.codes.scalar_type() == at::kFloat) {
    const Tensor rounded = (values.codes.to(at::kFloat) - values.zero) * values.scale;
    return at::linear(rounded.to(x.device()), matrix.codes, added);
  }
  const Tensor zeros = at::zeros(matrix.scales.sizes(), matrix.scales.options().dtype(at::kLong));
  const c10::impl::GenericList none(c10::OptionalType::create(c10::NumberType::get()));
  torch::jit::Stack stack = {values.codes, values.scale, values.zero, matrix.codes, matrix.scales,
                             zeros,        added,        1.0,         int64_t{0},   at::kFloat,
                             "none",       none,         ""};
  onednn("qlinear_pointwise")->callBoxed(stack);
  return stack.front().toTensor();
}

}  // namespace finetune::nn
