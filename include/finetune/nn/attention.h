// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/pass.h"

namespace finetune::nn {

using AttentionOptions = kernels::HeadAttention;

// The projections of an attention. The order of the members is the order of evaluation in a braced
// list; the backward pass runs in reverse: query, key, value.
struct Projections {
  Value value, key, query;  // [B, T, heads * D]; key and value [B, T, kv_heads * D]
};

// Dropout(softmax(Q K^T / sqrt(D) + mask)) V per head (Vaswani et al. 2017, eq. 1), shaped like
// query. The memory of the projections is reused for their gradients.
[[nodiscard]] Value attend(Projections projections, const AttentionOptions& options, Pass& p);

// Rotates pairs (i, i + R/2) of each head (Su et al. 2021, in the order of Llama's checkpoints).
// x [B, T, heads * D].
[[nodiscard]] Value rope(Value x, int64_t heads, const Rotation& rotation, Pass& p);

}  // namespace finetune::nn
