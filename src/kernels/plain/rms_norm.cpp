// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

// x / sqrt(mean(x^2) + epsilon) and what x was multiplied with.
struct UnitRows {
  Tensor rows, inverse;

  UnitRows(const Tensor& x, double epsilon) {
    const Tensor wide = x.to(compute_type(x));
    inverse = at::rsqrt(wide.square().mean(-1, true) + epsilon);
    rows = wide * inverse;
  }
};

Tensor factor_of(const RmsNorm& norm) { return norm.adds_one ? norm.weight + 1.0 : norm.weight; }

}  // namespace

// Rounded to x's type first, then to the other.
Tensor rms_norm(const Tensor& x, const RmsNorm& norm, at::ScalarType type) {
  return UnitRows(x, norm.epsilon).rows.mul_(factor_of(norm)).to(x.scalar_type()).to(type);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const RmsNorm& norm,
                        at::ScalarType type) {
  return norm_of_sum(x, branch, norm, type, rms_norm);
}

RmsNormGradients rms_norm_backward(const Tensor& of_output, const Tensor& x, const RmsNorm& norm,
                                   const Tensor& sum, bool /*rounds*/) {
  const Tensor gradient = of_output.to(x.scalar_type());
  const UnitRows unit(x, norm.epsilon);
  const Tensor dy = gradient.to(unit.rows.scalar_type());
  const Tensor of_weight = (dy * unit.rows).view({-1, x.size(-1)}).sum(0);
  // With g = dy f and u = x / rms: dx = (g - u mean(g u)) / rms.
  const Tensor g = dy * factor_of(norm);
  const Tensor along = (g * unit.rows).mean(-1, true);
  gradient.copy_(g.sub_(unit.rows.mul_(along)).mul_(unit.inverse));
  return {.input = sum.defined() ? sum.add_(gradient) : gradient, .weight = of_weight};
}

}  // namespace finetune::kernels::plain
