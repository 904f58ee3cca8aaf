// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/kernels/formats.h"
#include "finetune/tensor/tensor.h"

// Sums over rows, which are the gradients of biases and norms. A device adds rows in two stages:
// the operation that has them returns partial sums [P, C], and one launch adds those of many
// parameters to their gradients.
namespace finetune::kernels {

struct PartialSums {
  Tensor target;    // [C], float32 or bfloat16
  Tensor parts;     // [P, C], contiguous float32
  RoundingKey key;  // of a bfloat16 target: first_element is 0
};

// target += the sum over P, in one order, for each. A bfloat16 target is rounded stochastically.
void add_partial_sums(const std::vector<PartialSums>& sums);

// sum_of_rows() of layer_operations.h for matrices of one shape and type.
[[nodiscard]] std::vector<Tensor> sums_of_rows(const std::vector<Tensor>& matrices);

}  // namespace finetune::kernels
