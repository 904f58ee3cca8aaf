// SPDX-License-Identifier: MIT
#include "finetune/kernels/precision.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/float32_product.h"
#include "kernels/kernels.h"

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

}  // namespace

bool kernels::has_float32_product(const Tensor& a, const Tensor& b) {
  const at::ScalarType type = a.scalar_type();
  if ((type != at::kHalf && type != at::kBFloat16) || b.scalar_type() != type) return false;
  if (!kernels::kernels_for(a.device()).is_asynchronous) return false;
  static const auto product = c10::Dispatcher::singleton().findSchema({"aten::addmm", "dtype_out"});
  return product && product->hasComputedKernelForDispatchKey(a.options().computeDispatchKey());
}

bool has_fast_products(Precision precision, c10::Device device) {
  return precision == Precision::kFloat32 ||
         kernels::kernels_for(device).has_fast_products(precision);
}

Tensor linear_in(Precision precision, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (is_direct(precision, a)) {
    const Tensor weight = operand(precision, b).t();
    const Tensor input = operand(precision, a);
    return bias.defined() ? at::addmm(operand(precision, bias), input, weight)
                          : at::mm(input, weight);
  }
  const Tensor weight = b.to(at::kFloat).t();
  const Tensor result =
      at::empty({a.size(0), b.size(0)}, a.options().dtype(scalar_type(precision)));
  for (int64_t first = 0; first < a.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, a.size(0) - first);
    const Tensor rows = a.narrow(0, first, count).to(at::kFloat);
    result.narrow(0, first, count)
        .copy_(bias.defined() ? at::addmm(bias.to(at::kFloat), rows, weight)
                              : at::mm(rows, weight));
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
    target.addmm_(operand(precision, a), operand(precision, b), beta, 1.0);
    return;
  }
  const Tensor weight = b.to(at::kFloat);
  for (int64_t first = 0; first < a.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, a.size(0) - first);
    const Tensor rows = a.narrow(0, first, count).to(at::kFloat);
    const Tensor result = target.narrow(0, first, count);
    result.copy_(beta == 0.0 ? at::mm(rows, weight)
                             : result.to(at::kFloat).addmm_(rows, weight, beta, 1.0));
  }
}

}  // namespace finetune
