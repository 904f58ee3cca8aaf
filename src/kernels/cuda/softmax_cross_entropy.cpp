// SPDX-License-Identifier: MIT
#include "finetune/kernels/softmax_cross_entropy.h"

#include <ATen/ops/empty.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  const Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kDouble));
  const Tensor row_labels = labels.contiguous();
  const Tensor& gradient = options.narrow.defined() ? options.narrow : logits;
  Launch launch(logits);
  const CrossEntropyArguments arguments = {
      .logits = launch.reads<float>(logits),
      .bias = launch.reads<float>(options.bias),
      .labels = launch.reads<i64>(row_labels),
      .losses = launch.writes<double>(losses),
      .gradient = options.with_gradient ? launch.writes(gradient) : nullptr,
      .wide = options.with_gradient && options.narrow.defined() && options.is_wide_too
                  ? launch.writes<float>(logits)
                  : nullptr,
      .columns = logits.size(1),
      .smoothing = options.label_smoothing_factor,
      .gradient_scale = options.gradient_scale,
      .with_gradient = options.with_gradient,
      .is_aligned = is_aligned(logits.size(1), {logits, gradient, options.bias})};
  launch.run<kernel::cross_entropy>(value_type_of(gradient), 0, {.x = logits.size(0)}, arguments);
  return losses;
}

}  // namespace finetune::kernels::cuda
