// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::nn {

// How far the pairs of a head turn at each token (Su et al. 2021): of tokens [T], or with a layout
// [N]. R is at most the head's size; values after that are not rotated.
struct Rotation {
  Tensor cos, sin;  // [T, R / 2] or [N, R / 2] float32
};

// cos and sin of places [N] times frequencies [R / 2], both times `factor`.
[[nodiscard]] Rotation make_rotation(const Tensor& places, const Tensor& frequencies,
                                     double factor = 1.0);

}  // namespace finetune::nn
