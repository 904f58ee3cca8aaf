// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::nn {

// Rotation angles of rotary position embeddings at each token (Su et al. 2021): tokens [T], or with
// a layout [N]. R is at most the head's size; the remaining values are not rotated.
struct Rotation {
  Tensor cos, sin;          // [T, R / 2] or [N, R / 2] float32
  Tensor query_scale = {};  // [T] or [N] float32: factors of queries; undefined: all are 1
};

// Returns cos and sin of positions [N] times frequencies [R / 2], both multiplied by `factor`.
[[nodiscard]] Rotation make_rotation(const Tensor& positions, const Tensor& frequencies,
                                     double factor = 1.0);

}  // namespace finetune::nn
