// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

// Between float32 and the formats of weights and gradients. Contiguous tensors on one device; on
// the CPU by vectorised kernels, elsewhere by plain tensor operations with the same results.
namespace finetune {

// The random numbers of one rounding: Philox 4x32-10 under `key`; element i takes half (i mod 2) of
// word (i / 2 mod 4) of block i / 8, counted from `first_element`.
struct RoundingKey {
  uint64_t key = 0;
  uint64_t first_element = 0;
};

// target <- values, each rounded up or down with the probabilities that keep its mean. `values`
// float32, `target` bfloat16. Values that are not finite keep their class.
void round_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key);
// target <- target + values, rounded so. The sum is made in float32.
void add_stochastically(const Tensor& target, const Tensor& values, const RoundingKey& key);

// bfloat16 and int8 of float32 (FlashOptim, section 3.1):
//   w = bf16(x), nearest;  q = round(127 (x - w) / (ulp(w) / 2)) in [-127, 127]
//   back: x = w + q / 127 ulp(w) / 2, with ulp(w) = 2^(exponent - 7)
void split_values(const Tensor& values, const Tensor& weight, const Tensor& correction);
// `values` float32 is overwritten.
void join_values(const Tensor& weight, const Tensor& correction, const Tensor& values);

}  // namespace finetune
