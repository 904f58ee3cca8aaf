// SPDX-License-Identifier: MIT
#include "kernels/softmax_cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>

#include "finetune/base/error.h"
#include "kernels/softmax_cross_entropy_cpu.h"

namespace finetune::kernels {

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  if (!logits.is_cpu()) {
    return softmax_cross_entropy_by_tensor_operations_(logits, labels, options);
  }
  FT_CHECK(logits.scalar_type() == at::kFloat && logits.is_contiguous(), "logits are plain floats");
  const Tensor contiguous_labels = labels.contiguous();
  const Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
  SoftmaxCrossEntropyRows rows{.logits = logits.mutable_data_ptr<float>(),
                               .labels = contiguous_labels.const_data_ptr<int64_t>(),
                               .losses = losses.mutable_data_ptr<double>(),
                               .first_row = 0,
                               .last_row = 0,
                               .columns = logits.size(1),
                               .label_smoothing_factor = options.label_smoothing_factor,
                               .gradient_scale = options.gradient_scale,
                               .with_gradient = options.with_gradient};
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    SoftmaxCrossEntropyRows part = rows;
    part.first_row = begin;
    part.last_row = end;
    softmax_cross_entropy_rows(part);
  });
  return losses;
}

Tensor softmax_cross_entropy_by_tensor_operations_(const Tensor& logits, const Tensor& labels,
                                                   const SoftmaxCrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing_factor;
  const double on_each = smoothing / static_cast<double>(logits.size(1));
  const Tensor index = labels.unsqueeze(1);  // [N, 1]
  const Tensor total = at::logsumexp(logits, {1}, /*keepdim=*/true);
  Tensor losses = (total - logits.gather(1, index) * (1 - smoothing)).to(at::kDouble).squeeze(1);
  if (smoothing != 0) losses = losses - logits.sum({1}, false, at::kDouble) * on_each;
  if (options.with_gradient) {
    const double scale = options.gradient_scale;
    logits.sub_(total).exp_().mul_(scale).sub_(scale * on_each);
    logits.scatter_add_(1, index,
                        at::full(index.sizes(), -scale * (1 - smoothing), logits.options()));
  }
  return losses;
}

}  // namespace finetune::kernels
