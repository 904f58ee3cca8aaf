// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rsqrt.h>

#include "kernels/interface/dropout_mask.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

// s = residual + Dropout(product + bias), then y = LN(s). The product is overwritten with s.
Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                const AddNorm& weights) {
  const at::ScalarType type = compute_type(product);
  Tensor dropped = product.to(type) + bias;
  if (weights.dropout) dropped = dropped * dropout_mask(dropped, *weights.dropout, weights.layout);
  product.copy_(residual.to(type) + dropped);
  return plain::norm(product, weights);
}

Tensor norm(const Tensor& sums, const AddNorm& weights) {
  return at::layer_norm(sums.to(compute_type(sums)), {sums.size(-1)}, weights.gamma, weights.beta,
                        weights.epsilon)
      .to(sums.scalar_type());
}

// With u = (s - mean) / sqrt(var + epsilon) and h = dy gamma:
// ds = (h - mean(h) - u mean(h u)) / sqrt(var + epsilon), dgamma = sum(dy u), dbeta = sum(dy), and
// the product's gradient is ds times the dropout factors.
AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  const at::ScalarType type = compute_type(sums);
  const Tensor dy = gradient.to(type);
  const Tensor s = sums.to(type);
  const Tensor centred = s - s.mean(-1, true);
  const Tensor inverse_deviation = at::rsqrt((centred * centred).mean(-1, true) + weights.epsilon);
  const Tensor normalised = centred * inverse_deviation;
  const Tensor scaled = dy * weights.gamma;
  const Tensor ds = inverse_deviation * (scaled - scaled.mean(-1, true) -
                                         normalised * (scaled * normalised).mean(-1, true));
  AddNormGradients gradients = {.product = gradient,
                                .gamma = (dy * normalised).flatten(0, -2).sum(0),
                                .beta = dy.flatten(0, -2).sum(0),
                                .bias = ds.flatten(0, -2).sum(0)};
  gradient.copy_(ds);
  if (weights.dropout) {
    const Tensor dropped = ds * dropout_mask(ds, *weights.dropout, weights.layout);
    gradients.bias = dropped.flatten(0, -2).sum(0);
    sums.copy_(dropped);
    gradients.product = sums;
  }
  return gradients;
}

}  // namespace finetune::kernels::plain
