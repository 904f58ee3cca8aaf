// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/full.h>

#include "finetune/tensor/device.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

// With logits z, K classes, label l and smoothing e:
// loss = log(sum(exp(z))) - (1 - e) z[l] - e / K sum(z) and
// dz = gradient_scale (softmax(z) - e / K), minus gradient_scale (1 - e) at l.
// Overwrites the logits with exponentials: a second tensor of their size would be the largest of a
// step.
Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  if (options.bias.defined()) logits.add_(options.bias);
  const double smoothing = options.label_smoothing_factor;
  const double on_each = smoothing / static_cast<double>(logits.size(1));
  // Rows that only fill a shape (softmax_cross_entropy.h) have no label, loss or gradient.
  const Tensor filling = compiles_shapes(labels.device()) ? labels.lt(0) : Tensor();
  const Tensor index = (filling.defined() ? labels.clamp_min(0) : labels).unsqueeze(1);  // [N, 1]
  const Tensor largest = logits.amax({1}, /*keepdim=*/true);
  const Tensor own = logits.gather(1, index);
  const Tensor all = smoothing != 0 ? logits.sum({1}, false, at::kDouble) : Tensor();
  logits.sub_(largest).exp_();
  const Tensor sums = logits.sum({1}, /*keepdim=*/true);
  Tensor losses =
      (sums.log() + largest - (smoothing != 0 ? own * (1 - smoothing) : own)).to(at::kDouble);
  losses = losses.squeeze(1);
  if (smoothing != 0) losses = losses - all * on_each;
  if (filling.defined()) losses.masked_fill_(filling, 0.0);
  if (options.with_gradient) {
    const double scale = options.gradient_scale;
    logits.mul_(scale / sums);
    if (smoothing != 0) logits.sub_(scale * on_each);
    logits.scatter_add_(1, index,
                        at::full(index.sizes(), -scale * (1 - smoothing), logits.options()));
    if (filling.defined()) logits.masked_fill_(filling.unsqueeze(1), 0.0);
    if (options.narrow.defined()) options.narrow.copy_(logits);
  }
  return losses;
}

}  // namespace finetune::kernels::plain
