// SPDX-License-Identifier: MIT
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

bool has_fast_products(Precision /*precision*/) { return true; }

constinit const Kernels kKernels = {
    .name = "plain",
    .add_norm = add_norm,
    .norm = norm,
    .add_norm_backward = add_norm_backward,
    .attention = attention,
    .attention_backward = attention_backward,
    .block_attention = block_attention,
    .block_attention_backward = block_attention_backward,
    .bias_activation = bias_activation,
    .bias_activation_backward = bias_activation_backward,
    .dropout = dropout,
    .softmax_cross_entropy_ = softmax_cross_entropy_,
    .add_rows = add_rows,
    .sum_rows = sum_rows,
    .round_stochastically = round_stochastically,
    .add_stochastically = add_stochastically,
    .split_values = split_values,
    .join_values = join_values,
    .sum_of_squares = sum_of_squares,
    .mean = mean,
    .update_dynamic = update_dynamic,
    .update_wide = update_wide,
    .update_companded = update_companded,
    .encode_dynamic = encode_dynamic,
    .decode_dynamic = decode_dynamic,
    .encode_companded = encode_companded,
    .decode_companded = decode_companded,
    .has_fast_products = has_fast_products,
    // What counts is that a call is worth starting.
    .chunk_values = int64_t{1} << 22,
};

}  // namespace finetune::kernels::plain
