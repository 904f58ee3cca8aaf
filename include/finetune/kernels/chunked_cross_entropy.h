// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/parameter_store.h"
#include "finetune/kernels/precision.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

struct ChunkedCrossEntropyOptions {
  double label_smoothing_factor = 0.0;
  // What the loss sum is multiplied with before backward() is called, known beforehand because the
  // gradient is made in the forward pass.
  double gradient_scale = 1.0;
  int64_t rows_per_chunk = 128;  // of x; logits take rows_per_chunk * V * 4 bytes
  Precision precision = Precision::kFloat32;
  double softcap = 0.0;  // c: logits x become c tanh(x / c); 0: they stay
};

// The summed cross entropy of logits = x W^T + b, over all rows, without ever holding all logits
// (Liger's fused linear cross entropy; Wijmans et al. 2025).
//
// x [N, C] float32 or in the precision, weight [V, C] (W) and bias [V] or undefined, both of
// `parameters`; labels [N] int64 in [0, V). Returns a float32 scalar that requires a gradient where
// grad mode is on: then the gradients of weight and bias are added to `parameters` at once, times
// gradient_scale, and that of x is kept, in x's type, until backward() hands it on. Weight and bias
// are not completed: the weight may be an embedding too. Calling backward() with another scale is a
// mistake of the caller's (std::logic_error), as is calling it twice. Without grad mode: the loss
// alone. Labels and scale are checked on the CPU only: a device would have to be waited for.
[[nodiscard]] Tensor chunked_cross_entropy(const Tensor& x, const Tensor& weight,
                                           const Tensor& bias, const Tensor& labels,
                                           ParameterStore& parameters,
                                           const ChunkedCrossEntropyOptions& options);

}  // namespace finetune
