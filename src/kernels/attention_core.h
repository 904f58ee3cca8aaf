// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/kernels/token_layout.h"
#include "finetune/tensor/tensor.h"
#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// Dropout(softmax(Q K^T / sqrt(D))) V of every head. Probabilities exist for some query rows of a
// head at a time and are computed again in the backward pass, which needs no statistics of them.
struct Attention {
  Tensor query, key, value;  // [B, T, C], contiguous
  int64_t heads = 1;
  Tensor mask;  // [B, 1, 1, T] bool, true where a token may be attended to; or undefined
  std::optional<DropoutNumbers> dropout;
  // Of [1, N, C]: every sequence attends to itself alone, the mask is [1, 1, 1, N].
  const TokenLayout* layout = nullptr;
};

// -> [B, T, C]. Where a sample has no token that may be attended to: zeros.
[[nodiscard]] Tensor attention(const Attention& inputs);

// From the gradient of what attention() returned; query, key and value become their gradients.
void attention_backward(const Attention& inputs, const Tensor& gradient);

}  // namespace finetune::kernels
