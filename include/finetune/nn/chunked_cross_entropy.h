// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/precision.h"
#include "finetune/params/store.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

struct ChunkedCrossEntropyOptions {
  double label_smoothing_factor = 0.0;
  // Factor of the loss sum in backward(). It must be known in advance because the forward pass
  // computes the gradient.
  double gradient_scale = 1.0;
  int64_t rows_per_chunk = 128;  // of x; a chunk's logits take rows_per_chunk * V * 4 bytes
  Precision precision = Precision::kFloat32;
  double softcap = 0.0;  // c: logits x become c tanh(x / c); 0: unchanged
};

// Returns the summed cross entropy of logits = x W^T + b over all rows, without materialising all
// logits (Liger's fused linear cross entropy; Wijmans et al. 2025).
//
// x [N, C] float32 or in the precision, weight [V, C] (W) and bias [V] or undefined, both of
// `parameters`; labels [N] int64 in [0, V). Returns a float32 scalar that requires a gradient if
// grad mode is on: then the gradients of weight and bias, times gradient_scale, are added to
// `parameters` at once, and that of x is kept, in x's type, until backward(). Does not complete
// weight and bias, because the weight may also be an embedding. Calling backward() with another
// scale, or twice, is a programming error (std::logic_error). Without grad mode only the loss is
// computed. Labels and scale are checked only on the CPU, because on a device the check would wait.
[[nodiscard]] Tensor chunked_cross_entropy(const Tensor& x, const Weight& weight,
                                           const Weight& bias, const Tensor& labels,
                                           ParameterStore& parameters,
                                           const ChunkedCrossEntropyOptions& options);

// Returns log softmax(x W^T + b)[label] of each row: [N] float32. The arguments are those of
// chunked_cross_entropy(), of the options rows_per_chunk, precision and softcap. backward() takes
// any gradient [N]: it computes the chunks of logits again, and adds the gradients of weight and
// bias then. For losses that compare sequences (DPO: Rafailov et al. 2023, eq. 7), where the factor
// of a token is known only after the forward pass. Twice is a programming error.
[[nodiscard]] Tensor chunked_log_probs(const Tensor& x, const Weight& weight, const Weight& bias,
                                       const Tensor& labels, ParameterStore& parameters,
                                       const ChunkedCrossEntropyOptions& options);

}  // namespace finetune
