// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/dropout_numbers.h"

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

// Returns y; `product` becomes s, which is what the backward pass needs.
[[nodiscard]] Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                              const AddNorm& weights);

// y = LN(s) again, the same bits.
[[nodiscard]] Tensor norm(const Tensor& sums, const AddNorm& weights);

struct AddNormGradients {
  Tensor product;
  // Sums over rows, [C] or partial sums (partial_sums.h).
  Tensor gamma;
  Tensor beta;
  Tensor bias;
};

// `gradient`, of y, becomes that of s and of the residual. That of the product is in the memory of
// `sums`, or, without dropout, `gradient` itself.
[[nodiscard]] AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                                 const AddNorm& weights);

}  // namespace finetune::kernels
