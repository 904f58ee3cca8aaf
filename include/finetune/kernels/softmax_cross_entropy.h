// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

struct SoftmaxCrossEntropyOptions {
  double label_smoothing_factor = 0.0;
  double gradient_scale = 1.0;
  bool with_gradient = true;
  Tensor narrow = {};       // of 16 bits, like the logits: takes the gradient
  bool is_wide_too = true;  // the logits take it even so
  Tensor bias = {};         // [V] float32, added to each row of the logits before; or undefined
};

// Returns the cross entropy of each row of `logits` [N, V], float32 and contiguous, with `labels`
// [N] int64 in [0, V): [N] float64. Where operators are compiled for shapes (device.h), a label
// below 0 has no loss and no gradient. Overwrites `logits` with gradient_scale * dL/dlogits, where
// L is the sum of the losses; without gradient, or if only another tensor takes it, its contents
// are unspecified.
[[nodiscard]] Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                                            const SoftmaxCrossEntropyOptions& options);

}  // namespace finetune::kernels
