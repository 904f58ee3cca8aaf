// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// Which keys a query sees, and what becomes of a score before the softmax.
struct AttentionRule {
  bool causal = false;  // a token sees itself and those before it
  // A token sees tokens at a distance below this: with `causal` that many, itself included, else
  // 2 window - 1; 0: at any distance.
  int64_t window = 0;
  double scale = 0.0;    // of scores; 0: 1 / sqrt(D)
  double softcap = 0.0;  // c: scores s become c tanh(s / c); 0: they stay
};

// Dropout(softmax(Q K^T / sqrt(D))) V of every head. Probabilities exist for some query rows of a
// head at a time and are computed again in the backward pass, which needs no statistics of them.
struct Attention {
  Tensor query, key, value;  // [B, T, C], contiguous; key and value [B, T, kv_heads * D]
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads; else each serves heads / kv_heads of them
  AttentionRule rule = {};
  Tensor mask;  // [B, 1, 1, T] bool, true where a token may be attended to; or undefined
  std::optional<DropoutNumbers> dropout;
  // Of [1, N, C]: every sequence attends to itself alone, the mask is [1, 1, 1, N].
  const TokenLayout* layout = nullptr;

  [[nodiscard]] int64_t key_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  [[nodiscard]] int64_t head_size() const { return query.size(2) / heads; }
};

// -> [B, T, C]. Where a sample has no token that may be attended to: zeros.
[[nodiscard]] Tensor attention(const Attention& inputs);

// From the gradient of what attention() returned; query, key and value become their gradients.
void attention_backward(const Attention& inputs, const Tensor& gradient);

}  // namespace finetune::kernels
