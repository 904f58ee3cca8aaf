// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// The dimension of a product a b that counts tokens, so that it differs between batches. The other
// two are sizes of a weight.
enum class TokenAxis {
  kRows,   // of a and of the result: y = x W^T and dx = dy W
  kInner,  // summed: dW = dy^T x
};

// Whether token_product() multiplies these matrices faster than ATen. Depends only on sizes, types,
// device and processor, so a run that is resumed on such a machine takes the same path.
[[nodiscard]] bool has_token_product(const Tensor& a, const Tensor& b);

// target = beta target + a b with beta 0 or 1. With 0 the old values are not read.
// Requires: has_token_product(a, b); a target of a's type, contiguous along its rows.
void token_product(const Tensor& target, const Tensor& a, const Tensor& b, TokenAxis tokens,
                   double beta);

}  // namespace finetune::kernels
