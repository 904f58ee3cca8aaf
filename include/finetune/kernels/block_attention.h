// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "finetune/kernels/dropout.h"
#include "finetune/tensor/tensor.h"

// BigBird's block-sparse attention (Zaheer et al. 2020, internal transformer construction): tokens
// are divided into blocks, and a block of queries attends to some blocks of keys. The first and the
// last block attend to all and are attended to by all; every other one attends to those two,
// itself, its two neighbours and some random ones. Time and memory grow with the number of tokens;
// no tensor is tokens x tokens.
namespace finetune {

struct BlockSparseOptions {
  int64_t block_size = 64;
  int64_t random_blocks = 3;
  uint64_t seed = 0;  // of the drawn blocks, which are a function of (seed, layer, head, blocks)
  // As transformers 5.23 does: without dropout, that is in evaluation, each drawn block is block 0,
  // which is then seen that many times more; attention probabilities are never dropped.
  bool like_transformers = false;

  // Up to this many tokens so little would be left out that full attention is taken.
  [[nodiscard]] int64_t longest_full() const { return (5 + 2 * random_blocks) * block_size; }
};

struct BlockSparseAttention {
  Tensor query, key, value;  // [B, T, C]
  int64_t heads = 1;
  Tensor mask = {};  // [B, 1, 1, T] bool, true where a token may be attended to; or undefined
  int64_t layer = 0;
  double dropout_probability = 0.0;
  std::optional<DropoutStream> dropout = {};  // nothing: evaluation
};

// Dropout(softmax(Q K^T / sqrt(D))) V of every head over the blocks that are seen -> [B, T, C].
// Tokens that may not be attended to get zeros, as do those that see no token. Any T: the last
// block may be short. Differentiable. Dropout is that of full attention at the same (head, query,
// key).
[[nodiscard]] Tensor block_sparse_attention(const BlockSparseAttention& inputs,
                                            const BlockSparseOptions& options);

// How often this process has computed block-sparse attention forwards, recomputation included.
[[nodiscard]] int64_t count_block_sparse_passes();

}  // namespace finetune
