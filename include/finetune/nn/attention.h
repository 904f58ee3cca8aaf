// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/pass.h"

namespace finetune::nn {

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads; else each serves heads / kv_heads of them
  int64_t layer = 0;     // of the dropout's numbers and of the random blocks
  double dropout = 0.0;
  bool causal = false;   // a token sees itself and those before it
  int64_t window = 0;    // causal: so many tokens, itself included; 0: all before it
  double scale = 0.0;    // of scores; 0: 1 / sqrt(D)
  double softcap = 0.0;  // c: scores s become c tanh(s / c); 0: they stay
  // In passes over more tokens than its longest_full(); else full attention.
  std::optional<BlockSparseOptions> block_sparse = {};
};

// The projections of an attention. The order of the members is the order of evaluation in a braced
// list; the backward pass takes them in reverse: query, key, value.
struct Projections {
  Value value, key, query;  // [B, T, heads * D]; key and value [B, T, kv_heads * D]
};

// Dropout(softmax(Q K^T / sqrt(D) + mask)) V in heads (Vaswani et al. 2017, eq. 1) -> like query.
// The projections' memory becomes their gradients.
[[nodiscard]] Value attend(Projections projections, const AttentionOptions& options, Pass& p);

// Rotates pairs (i, i + R/2) of each head (Su et al. 2021, in the order of Llama's checkpoints).
// x [B, T, heads * D].
[[nodiscard]] Value rope(Value x, int64_t heads, const Rotation& rotation, Pass& p);

}  // namespace finetune::nn
