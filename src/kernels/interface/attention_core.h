// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/interface/block_pattern.h"
#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels {

// Which keys a query attends to, and how a score is changed before the softmax.
struct AttentionRule {
  bool causal = false;  // a token attends to itself and to earlier tokens
  // Sliding window: a token attends to tokens at a distance below this. With `causal` these are
  // `window` tokens, itself included, else 2 window - 1. 0: no limit.
  int64_t window = 0;
  double scale = 0.0;    // of scores; 0: 1 / sqrt(D)
  double softcap = 0.0;  // c: a score s becomes c tanh(s / c); 0: no soft-capping
};

// Dropout(softmax(Q K^T / sqrt(D))) V of every head. Probabilities exist only for some query rows
// of a head at a time. The backward pass computes them again and needs no saved statistics.
struct Attention {
  Tensor query, key, value;  // [B, T, C], contiguous; key and value [B, T, kv_heads * D]
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads; else each serves heads / kv_heads of them
  AttentionRule rule = {};
  Tensor mask;  // [B, 1, 1, T] bool, true where a token may be attended to; or undefined
  std::optional<DropoutNumbers> dropout;
  // [heads] float32: a further score of each row, to a key that has no value (gpt-oss' attention
  // sinks); or undefined.
  Tensor sinks = {};
  // Where attention_backward() writes their gradients, [samples, heads] float32.
  Tensor of_sinks = {};
  // Of [1, N, C]: each sequence attends only to itself, and the mask is [1, 1, 1, N].
  const TokenLayout* layout = nullptr;
  // Not null: queries are [1, M, C], those of these tokens of the sequences alone. Only for kernels
  // with Kernels::attends_fewer_queries.
  const TokenLayout* queries = nullptr;

  [[nodiscard]] int64_t samples() const { return layout == nullptr ? key.size(0) : layout->rows(); }
  [[nodiscard]] int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  // Whether there are queries, and keys and values are of their type.
  [[nodiscard]] bool has_one_type() const {
    const at::ScalarType type = query.scalar_type();
    return query.numel() > 0 && key.scalar_type() == type && value.scalar_type() == type;
  }
  [[nodiscard]] int64_t head_size() const { return query.size(2) / heads; }
  // Tokens of the longest sequence.
  [[nodiscard]] int64_t longest() const {
    return layout == nullptr ? key.size(1) : layout->longest;
  }
  // The factor of scores.
  [[nodiscard]] double scale() const {
    return rule.scale != 0.0 ? rule.scale : 1.0 / std::sqrt(static_cast<double>(head_size()));
  }
};

// Returns [B, T, C], like the query; rows are zero where the mask excludes all tokens of a sample.
[[nodiscard]] Tensor attention(const Attention& inputs);

// `gradient` is that of attention()'s result. Overwrites query, key and value with their gradients,
// and of_sinks.
void attention_backward(const Attention& inputs, const Tensor& gradient);

// The block-sparse attention of finetune/kernels/block_attention.h without autograd. The forward
// pass keeps its result and one number per row; the backward pass recomputes each tile of
// probabilities.
struct BlockAttention {
  Tensor query, key, value;  // [B, T, C], contiguous
  BlockPattern pattern;
  Tensor mask;  // [B, 1, 1, T] bool or undefined
  std::optional<DropoutNumbers> dropout;
};

struct BlockContext {
  Tensor context;  // [B, T, C], like the query
  // [B, H, T] in what is computed in: of a row's scores; +infinity: a zero row. [0] where the
  // backward pass does not read it.
  Tensor log_sum_exp;
};

[[nodiscard]] BlockContext block_attention(const BlockAttention& inputs);

// `gradient` is that of the context. Overwrites query, key and value with their gradients. The bits
// do not depend on the number of threads.
void block_attention_backward(const BlockAttention& inputs, const BlockContext& forward,
                              const Tensor& gradient);

// Where the attention runs: the options' block pattern depends on the layer.
struct BlockLayer {
  int64_t layer = 0;
  int64_t heads = 1;
  double dropout_probability = 0.0;
  std::optional<DropoutStream> dropout = {};
};
[[nodiscard]] BlockAttention make_block_attention(const Tensor& query, const Tensor& key,
                                                  const Tensor& value, const Tensor& mask,
                                                  const BlockLayer& layer,
                                                  const BlockSparseOptions& options);

}  // namespace finetune::kernels
