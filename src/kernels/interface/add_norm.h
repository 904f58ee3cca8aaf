// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/interface/dropout_numbers.h"

// The end of each half of an encoder layer: y = LN(s), s = residual + Dropout(product + bias).
// Tensors [B, T, C] are contiguous; weights [C] float32 (double for double).
namespace finetune::kernels {

struct AddNorm {
  Tensor gamma;
  Tensor beta;
  double epsilon = 1e-12;
  std::optional<DropoutNumbers> dropout;
  const TokenLayout* layout = nullptr;  // of [1, N, C]
};

// Returns y. `product` is overwritten with s, which the backward pass needs.
[[nodiscard]] Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                              const AddNorm& weights);

// Recomputes y = LN(s) from `sums`, with the same bits.
[[nodiscard]] Tensor norm(const Tensor& sums, const AddNorm& weights);

struct AddNormGradients {
  Tensor product;
  // Sums over rows, [C] or partial sums (partial_sums.h).
  Tensor gamma;
  Tensor beta;
  Tensor bias;
};

// Takes dL/dy in `gradient` and overwrites it with dL/ds, which is also the gradient of the
// residual. The gradient of the product reuses the memory of `sums`; without dropout it is
// `gradient` itself.
[[nodiscard]] AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                                 const AddNorm& weights);

}  // namespace finetune::kernels
