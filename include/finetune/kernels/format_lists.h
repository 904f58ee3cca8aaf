// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/formats.h"
#include "finetune/tensor/tensor.h"

// The conversions of formats.h for many tensors of one device, which are one launch there.
namespace finetune::kernels {

struct RoundedSum {
  Tensor target;  // bfloat16
  Tensor values;  // contiguous float32
  RoundingKey key;
  [[nodiscard]] const Tensor& tensor() const { return target; }
};
// add_stochastically() for each. Requires: the targets do not overlap.
void add_all_stochastically(const std::vector<RoundedSum>& sums);

struct SplitTensor {
  Tensor weight;      // bfloat16
  Tensor correction;  // int8
  Tensor values;      // float32
  [[nodiscard]] const Tensor& tensor() const { return values; }
};
// join_values() for each.
void join_all_values(const std::vector<SplitTensor>& list);

// The values of rows `indices` of a split matrix: indices [...] int64 -> [..., C] float32.
[[nodiscard]] Tensor joined_rows(const Tensor& weight, const Tensor& correction,
                                 const Tensor& indices);

}  // namespace finetune::kernels
