// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/tensor/tensor.h"
#include "kernels/block_pattern.h"
#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

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
