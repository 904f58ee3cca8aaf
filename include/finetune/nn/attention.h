// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/nn/linear.h"

namespace finetune::nn {

using AttentionOptions = kernels::HeadAttention;

// The projections of an attention. The order of the members is the order of evaluation in a braced
// list; the backward pass runs in reverse: query, key, value.
struct Projections {
  Value value, key, query;  // [B, T, heads * D]; key and value [B, T, kv_heads * D]
};

// Returns what an attention projects its queries from, given the layer's input x [B, T, C]: in the
// last layer the tokens that are read, where the kernels attend with fewer queries than keys, else
// x.
[[nodiscard]] Value query_tokens(Value x, const AttentionOptions& options, Pass& p);

// Queries, keys and values from one matrix, in this order of its rows.
class FusedProjections {
 public:
  // `queries` and `keys` are the sizes heads * D and kv_heads * D; values have that of the keys.
  // The matrix may be that of `groups` of heads, one after the other.
  FusedProjections(const Scope& scope, int64_t inputs, int64_t queries, int64_t keys, bool has_bias,
                   int64_t groups = 1, const LinearNames& names = {});
  Projections operator()(Value x, Pass& p) const;

 private:
  int64_t queries_, keys_, groups_;
  Linear all_;
};

// Dropout(softmax(Q K^T / sqrt(D) + mask)) V per head (Vaswani et al. 2017, eq. 1), shaped like
// query; in the last layer of the tokens that are read (read_tokens()), whether or not the queries
// are those of these tokens alone. The memory of the
// projections is reused for their gradients. `cached`: keys and values are those of this layer,
// which has put them into the cache. `sinks` [heads]: a further score of each row of a head, to a
// key that has no value (OpenAI 2025, gpt-oss).
[[nodiscard]] Value attend(Projections projections, const AttentionOptions& options, Pass& p,
                           std::optional<int64_t> cached = std::nullopt, const Weight& sinks = {});

// Rotates pairs (i, i + R/2) of each head of queries and keys [B, T, heads * D] (Su et al. 2021, in
// the order of Llama's checkpoints); of queries alone without keys. Queries may be those of
// query_tokens().
[[nodiscard]] Projections rope(Projections all, int64_t head_size, const Rotation& rotation,
                               Pass& p);
// Rotates pairs (2 i, 2 i + 1) instead. The values of the results have another order within a head,
// the same for queries and keys, which scores do not depend on.
[[nodiscard]] Projections rope_of_neighbours(Projections all, int64_t head_size,
                                             const Rotation& rotation, Pass& p);
// Returns the rotation of all tokens, of those of x.
[[nodiscard]] Rotation rotation_of(const Rotation& all, const Tensor& x, const Pass& p);

}  // namespace finetune::nn
