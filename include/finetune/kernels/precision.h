// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune {

// The precision in which a model computes. In the 16-bit types, activations have that type and
// matrix products read and write it; sums, norms, softmax and losses are float32. Weights have
// their own format (WeightFormat).
enum class Precision { kFloat32, kBFloat16, kFloat16 };

[[nodiscard]] constexpr at::ScalarType scalar_type(Precision precision) {
  switch (precision) {
    case Precision::kBFloat16:
      return at::kBFloat16;
    case Precision::kFloat16:
      return at::kHalf;
    case Precision::kFloat32:
      break;
  }
  return at::kFloat;
}

// Whether `device` has instructions for matrix products of this type. If not (a CPU without
// AVX512-BF16, AVX512-FP16 or AMX), products of the rounded values are computed in float32 and
// rounded again: 16-bit types then save memory but no time.
[[nodiscard]] bool has_fast_products(Precision precision, c10::Device device);

// a b^T + bias in `precision`: a [N, K] and b [M, K] in that type or float32, bias [M] or
// undefined; the result [N, M] has that type. Accumulates in float32.
[[nodiscard]] Tensor linear_in(Precision precision, const Tensor& a, const Tensor& b,
                               const Tensor& bias);
// a b in `precision`: a [N, K], b [K, M] -> [N, M].
[[nodiscard]] Tensor product_in(Precision precision, const Tensor& a, const Tensor& b);
// target <- beta * target + a b, in the memory of `target` [N, M].
void product_into(Precision precision, const Tensor& target, const Tensor& a, const Tensor& b,
                  double beta);

}  // namespace finetune
