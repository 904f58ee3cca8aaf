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

// target[index] += row for rows [N, C] with their indices [N] int64, in the order of N; both
// float32. Rows whose index is `skipped` are left out. The gradients of tables whose rows are
// looked up.
void add_rows(const Tensor& target, const Tensor& indices, const Tensor& rows, int64_t skipped);
// The same where target is zero and no row is skipped.
void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows);
// The same into a bfloat16 target as add_rows(): the sum of each index is rounded once, those of
// rising indices one after the other with the numbers of `key` from element 0 on. False, with
// nothing done, where the device has no kernel for it.
[[nodiscard]] bool add_rows_stochastically(const Tensor& target, const Tensor& indices,
                                           const Tensor& rows, int64_t skipped,
                                           const RoundingKey& key);

}  // namespace finetune::kernels
