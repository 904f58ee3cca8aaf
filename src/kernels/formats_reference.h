// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/formats.h"

// The functions of finetune/kernels/formats.h by plain tensor operations: what devices without a
// kernel use, and what the kernels are tested against.
namespace finetune::kernels {

void round_stochastically_reference(const Tensor& target, const Tensor& values,
                                    const RoundingKey& key);
void split_values_reference(const Tensor& values, const Tensor& weight, const Tensor& correction);
void join_values_reference(const Tensor& weight, const Tensor& correction, const Tensor& values);

}  // namespace finetune::kernels
