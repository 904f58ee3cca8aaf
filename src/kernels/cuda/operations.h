// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/interface/kernels.h"
#include "kernels/plain/operations.h"

// The operations as kernels of device/, launched by a Runner (runner.h). Operations without a
// kernel, and sizes that kernels do not support, use plain's.
namespace finetune::kernels::cuda {

extern const Kernels kKernels;
extern const FlashAttention kFlashAttention;
extern const AdapterProducts kAdapterProducts;

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
FunctionOf<decltype(Kernels::gated_product)> gated_product;
FunctionOf<decltype(Kernels::gated_product_backward)> gated_product_backward;
FunctionOf<decltype(Kernels::xielu)> xielu;
FunctionOf<decltype(Kernels::xielu_backward)> xielu_backward;
FunctionOf<decltype(Kernels::rms_norm)> rms_norm;
FunctionOf<decltype(Kernels::add_rms_norm)> add_rms_norm;
FunctionOf<decltype(Kernels::rms_norm_backward)> rms_norm_backward;
FunctionOf<decltype(Kernels::rotate_heads)> rotate_heads;
FunctionOf<decltype(Kernels::delta_rule)> delta_rule;
FunctionOf<decltype(Kernels::delta_rule_backward)> delta_rule_backward;
FunctionOf<decltype(Kernels::short_convolution)> short_convolution;
FunctionOf<decltype(Kernels::short_convolution_backward)> short_convolution_backward;
FunctionOf<decltype(Kernels::softmax_cross_entropy_)> softmax_cross_entropy_;
FunctionOf<decltype(Kernels::add_rows)> add_rows;
FunctionOf<decltype(Kernels::sum_rows)> sum_rows;
FunctionOf<decltype(Kernels::add_rows_stochastically)> add_rows_stochastically;
FunctionOf<decltype(Kernels::sums_of_rows)> sums_of_rows;
FunctionOf<decltype(Kernels::add_partial_sums)> add_partial_sums;
FunctionOf<decltype(Kernels::round_stochastically)> round_stochastically;
FunctionOf<decltype(Kernels::add_all_stochastically)> add_all_stochastically;
FunctionOf<decltype(Kernels::split_values)> split_values;
FunctionOf<decltype(Kernels::join_all_values)> join_all_values;
FunctionOf<decltype(Kernels::joined_rows)> joined_rows;
FunctionOf<decltype(Kernels::dequantize_mxfp4)> dequantize_mxfp4;
FunctionOf<decltype(Kernels::dequantize_nf4)> dequantize_nf4;
FunctionOf<decltype(Kernels::sum_of_squares)> sum_of_squares;
FunctionOf<decltype(Kernels::sum_of_all_squares)> sum_of_all_squares;
FunctionOf<decltype(Kernels::block_sums_of_squares)> block_sums_of_squares;
using plain::mean;
FunctionOf<decltype(Kernels::update_dynamic)> update_dynamic;
FunctionOf<decltype(Kernels::update_wide)> update_wide;
FunctionOf<decltype(Kernels::update_companded)> update_companded;
FunctionOf<decltype(Kernels::update_together)> update_together;
using plain::decode_companded;
using plain::decode_dynamic;
using plain::encode_companded;
using plain::encode_dynamic;
using plain::has_fast_products;
using plain::has_token_product;
using plain::token_product;

}  // namespace finetune::kernels::cuda
