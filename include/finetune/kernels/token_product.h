// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// Whether token_product() multiplies these matrices faster than ATen. Depends only on sizes, types,
// strides, device and processor, so a run that is resumed on such a machine takes the same path.
[[nodiscard]] bool has_token_product(const Tensor& a, const Tensor& b);

// target = beta target + a b with beta 0 or 1, such as y = x W^T, dx = dy W and dW = dy^T x. With 0
// the old values are not read. A value's bits do not depend on the number of rows and columns, nor
// on that of threads.
// Requires: has_token_product(a, b); a target of a's type, contiguous along its rows.
void token_product(const Tensor& target, const Tensor& a, const Tensor& b, double beta);

}  // namespace finetune::kernels
