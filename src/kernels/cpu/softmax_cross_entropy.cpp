// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/softmax_cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "finetune/base/error.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {

Tensor softmax_cross_entropy_(const Tensor& logits, const Tensor& labels,
                              const SoftmaxCrossEntropyOptions& options) {
  FT_CHECK(logits.scalar_type() == at::kFloat, "logits are float32");
  if (options.bias.defined()) logits.add_(options.bias);
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
  at::parallel_for(0, logits.size(0), row_grain(logits.size(1)), [&](int64_t begin, int64_t end) {
    SoftmaxCrossEntropyRows part = rows;
    part.first_row = begin;
    part.last_row = end;
    softmax_cross_entropy_rows(part);
  });
  if (options.with_gradient && options.narrow.defined()) options.narrow.copy_(logits);
  return losses;
}

}  // namespace finetune::kernels::cpu
