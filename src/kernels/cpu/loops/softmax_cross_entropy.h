// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// The arithmetic of softmax_cross_entropy_() over contiguous rows of V floats, without torch, so
// that it can be compiled with separate flags. The bits do not depend on the processor.
struct SoftmaxCrossEntropyRows {
  float* logits;          // overwritten
  const int64_t* labels;  // in [0, columns)
  double* losses;         // one per row
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  double label_smoothing_factor;
  double gradient_scale;
  bool with_gradient;  // without it the final contents of `logits` are unspecified
};

void softmax_cross_entropy_rows(const SoftmaxCrossEntropyRows& rows);

}  // namespace finetune::kernels
