// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "kernels/kernels.h"

// The operations by ATen operators: for every device and for float64. Tests compare the other
// tables with these; a device without kernels of its own trains with them.
namespace finetune::kernels::plain {

extern const Kernels kKernels;

FunctionOf<decltype(Kernels::add_norm)> add_norm;
FunctionOf<decltype(Kernels::norm)> norm;
FunctionOf<decltype(Kernels::add_norm_backward)> add_norm_backward;
FunctionOf<decltype(Kernels::attention)> attention;
FunctionOf<decltype(Kernels::attention_backward)> attention_backward;
FunctionOf<decltype(Kernels::block_attention)> block_attention;
FunctionOf<decltype(Kernels::block_attention_backward)> block_attention_backward;
FunctionOf<decltype(Kernels::bias_activation)> bias_activation;
FunctionOf<decltype(Kernels::bias_activation_backward)> bias_activation_backward;
FunctionOf<decltype(Kernels::dropout)> dropout;
FunctionOf<decltype(Kernels::softmax_cross_entropy_)> softmax_cross_entropy_;
FunctionOf<decltype(Kernels::add_rows)> add_rows;
FunctionOf<decltype(Kernels::sum_rows)> sum_rows;
FunctionOf<decltype(Kernels::round_stochastically)> round_stochastically;
FunctionOf<decltype(Kernels::add_stochastically)> add_stochastically;
FunctionOf<decltype(Kernels::split_values)> split_values;
FunctionOf<decltype(Kernels::join_values)> join_values;
FunctionOf<decltype(Kernels::sum_of_squares)> sum_of_squares;
FunctionOf<decltype(Kernels::mean)> mean;
FunctionOf<decltype(Kernels::update_dynamic)> update_dynamic;
FunctionOf<decltype(Kernels::update_wide)> update_wide;
FunctionOf<decltype(Kernels::update_companded)> update_companded;
FunctionOf<decltype(Kernels::encode_dynamic)> encode_dynamic;
FunctionOf<decltype(Kernels::decode_dynamic)> decode_dynamic;
FunctionOf<decltype(Kernels::encode_companded)> encode_companded;
FunctionOf<decltype(Kernels::decode_companded)> decode_companded;
FunctionOf<decltype(Kernels::has_fast_products)> has_fast_products;

// What they compute in: float32, or float64 where a test asks for it.
inline at::ScalarType compute_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Scores of attention at a time: their random numbers take ten times their memory.
constexpr int64_t kScoresAtOnce = 1 << 22;

// 1 / sqrt(D) of queries [..., D].
inline double score_scale(const Tensor& query) {
  return 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
}

}  // namespace finetune::kernels::plain
