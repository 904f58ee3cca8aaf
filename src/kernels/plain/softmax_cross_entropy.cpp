// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing_factor;
  const double on_each = smoothing / static_cast<double>(logits.size(1));
  const Tensor index = labels.unsqueeze(1);  // [N, 1]
  const Tensor total = at::logsumexp(logits, {1}, /*keepdim=*/true);
  const Tensor own = logits.gather(1, index);
  Tensor losses =
      (total - (smoothing != 0 ? own * (1 - smoothing) : own)).to(at::kDouble).squeeze(1);
  if (smoothing != 0) losses = losses - logits.sum({1}, false, at::kDouble) * on_each;
  if (options.with_gradient) {
    const double scale = options.gradient_scale;
    logits.sub_(total).exp_().mul_(scale);
    if (smoothing != 0) logits.sub_(scale * on_each);
    logits.scatter_add_(1, index,
                        at::full(index.sizes(), -scale * (1 - smoothing), logits.options()));
  }
  return losses;
}

}  // namespace finetune::kernels::plain
