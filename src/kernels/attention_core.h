// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/dropout_numbers.h"

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
  // Of [1, N, C]: each sequence attends only to itself, and the mask is [1, 1, 1, N].
  const TokenLayout* layout = nullptr;

  [[nodiscard]] int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  [[nodiscard]] int64_t head_size() const { return query.size(2) / heads; }
};

// Returns [B, T, C]; rows are zero where the mask excludes all tokens of a sample.
[[nodiscard]] Tensor attention(const Attention& inputs);

// `gradient` is that of attention()'s result. Overwrites query, key and value with their gradients.
void attention_backward(const Attention& inputs, const Tensor& gradient);

}  // namespace finetune::kernels
