// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

// Conversion between float32 and the formats of weights and gradients. Contiguous tensors on one
// device; vectorised kernels on the CPU, plain tensor operations with the same results elsewhere.
namespace finetune {

// The random numbers of one stochastic rounding: Philox 4x32-10 with key `key`; element i takes
// half (i mod 2) of word (i / 2 mod 4) of block i / 8, counted from `first_element`.
struct RoundingKey {
  uint64_t key = 0;
  uint64_t first_element = 0;
};

// target <- values, each rounded up or down with probabilities that preserve its mean. `values`
// float32, `target` bfloat16. NaN and Inf stay NaN and Inf.
void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key);
// target <- target + values, summed in float32 and rounded stochastically.
void add_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key);

// Splits float32 values into bfloat16 and int8 (FlashOptim, section 3.1):
//   w = bf16(x), nearest;  q = round(127 (x - w) / (ulp(w) / 2)) in [-127, 127]
//   back: x = w + q / 127 ulp(w) / 2, with ulp(w) = 2^(exponent - 7)
void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction);
// The inverse of split_values(); overwrites `values` (float32).
void join_values(const Tensor& weight, const Tensor& correction, const Tensor& values);

}  // namespace finetune
