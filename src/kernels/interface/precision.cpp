// SPDX-License-Identifier: MIT
#include "finetune/kernels/precision.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "finetune/kernels/float32_product.h"
#include "finetune/kernels/token_product.h"
#include "finetune/tensor/device.h"
#include "kernels/interface/kernels.h"

namespace finetune {
namespace {

// Rows of a product that is computed in float32 and rounded. This bounds the temporary memory and
// is enough for the full speed of a matrix product.
constexpr int64_t kRowsAtOnce = 512;

// Whether torch's product of unconverted tensors is used.
bool is_direct(Precision precision, const Tensor& a) {
  return precision == Precision::kFloat32 || has_fast_products(precision, a.device());
}

// Converts a weight for the product; float64, which only tests use, stays.
Tensor operand(Precision precision, const Tensor& x) {
  return precision == Precision::kFloat32 ? x : x.to(scalar_type(precision));
}

// target = beta target + a b, with a row of a for each token.
void multiply_into(const Tensor& target, const Tensor& a, const Tensor& b, double beta) {
  if ((beta == 0.0 || beta == 1.0) && kernels::has_token_product(a, b)) {
    kernels::token_product(target, a, b, beta);
  } else {
    target.addmm_(a, b, beta, 1.0);
  }
}

// Returns a b + bias of the same type, with a row of a for each token.
Tensor multiply_tokens(const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (!kernels::has_token_product(a, b)) {
    return bias.defined() ? at::addmm(bias, a, b) : at::mm(a, b);
  }
  const Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  if (bias.defined()) result.copy_(bias);
  multiply_into(result, a, b, bias.defined() ? 1.0 : 0.0);
  return result;
}

}  // namespace

bool kernels::has_float32_product(const Tensor& a, const Tensor& b) {
  const at::ScalarType type = a.scalar_type();
  if ((type != at::kHalf && type != at::kBFloat16) || b.scalar_type() != type) return false;
  if (!kernels::kernels_for(a.device()).is_asynchronous) return false;
  if (compiles_shapes(a.device())) return false;  // TorchTPU 0.2.0 multiplies unlike types there
  static const auto product = c10::Dispatcher::singleton().findSchema({"aten::addmm", "dtype_out"});
  return product && product->hasComputedKernelForDispatchKey(a.options().computeDispatchKey());
}

void kernels::add_float32_product(const Tensor& target, const Tensor& a, const Tensor& b,
                                  double beta) {
  Tensor result = target;
  at::addmm_out(result, target, a, b, at::kFloat, beta);
}

bool has_fast_products(Precision precision, c10::Device device) {
  return precision == Precision::kFloat32 ||
         kernels::kernels_for(device).has_fast_products(precision);
}

Tensor linear_in(Precision precision, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (is_direct(precision, a)) {
    return multiply_tokens(operand(precision, a), operand(precision, b).t(),
                           bias.defined() ? operand(precision, bias) : Tensor());
  }
  const Tensor weight = b.to(at::kFloat).t();
  const Tensor result =
      at::empty({a.size(0), b.size(0)}, a.options().dtype(scalar_type(precision)));
  for (int64_t first = 0; first < a.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, a.size(0) - first);
    const Tensor rows = a.narrow(0, first, count).to(at::kFloat);
    result.narrow(0, first, count)
        .copy_(multiply_tokens(rows, weight, bias.defined() ? bias.to(at::kFloat) : Tensor()));
  }
  return result;
}

Tensor product_in(Precision precision, const Tensor& a, const Tensor& b) {
  const auto type = precision == Precision::kFloat32 ? a.scalar_type() : scalar_type(precision);
  const Tensor result = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  product_into(precision, result, a, b, 0.0);
  return result;
}

void product_into(Precision precision, const Tensor& target, const Tensor& a, const Tensor& b,
                  double beta) {
  if (is_direct(precision, a)) {
    const Tensor left = operand(precision, a);
    const Tensor right = operand(precision, b);
    if (left.scalar_type() == target.scalar_type()) {
      multiply_into(target, left, right, beta);
    } else if (kernels::has_float32_product(left, right)) {
      kernels::add_float32_product(target, left, right, beta);
    } else if (beta == 0.0) {
      target.copy_(multiply_tokens(left, right, Tensor()));
    } else {
      target.mul_(beta).add_(multiply_tokens(left, right, Tensor()));
    }
    return;
  }
  const Tensor weight = b.to(at::kFloat);
  for (int64_t first = 0; first < a.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, a.size(0) - first);
    const Tensor rows = a.narrow(0, first, count).to(at::kFloat);
    const Tensor result = target.narrow(0, first, count);
    if (beta == 0.0) {
      result.copy_(multiply_tokens(rows, weight, Tensor()));
      continue;
    }
    const Tensor sum = result.to(at::kFloat);
    multiply_into(sum, rows, weight, beta);
    if (!sum.is_same(result)) result.copy_(sum);
  }
}

}  // namespace finetune
