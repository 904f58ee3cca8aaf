// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "finetune/kernels/dropout.h"
#include "finetune/tensor/tensor.h"

// BigBird's block-sparse attention (Zaheer et al. 2020, internal transformer construction): tokens
// are divided into blocks, and each block of queries attends to some blocks of keys. The first and
// the last block attend to all blocks and all blocks attend to them; every other block attends to
// these two, itself, its two neighbours and some random blocks. Time and memory are linear in the
// number of tokens; no tensor is tokens x tokens.
namespace finetune {

struct BlockSparseOptions {
  int64_t block_size = 64;
  int64_t random_blocks = 3;
  uint64_t seed = 0;  // of the random blocks, a function of (seed, layer, head, blocks)
  // Reproduces transformers 5.23: without dropout, i.e. in evaluation, each random block is block
  // 0, which then counts several times; attention probabilities have no dropout.
  bool like_transformers = false;

  // Up to this number of tokens full attention is used, because few blocks would be skipped.
  [[nodiscard]] int64_t longest_full() const { return (5 + 2 * random_blocks) * block_size; }
};

struct BlockSparseAttention {
  Tensor query, key, value;  // [B, T, C]
  int64_t heads = 1;
  Tensor mask = {};  // [B, 1, 1, T] bool, true where a token may be attended to; undefined: all
  int64_t layer = 0;
  double dropout_probability = 0.0;
  std::optional<DropoutStream> dropout = {};  // nullopt: evaluation
};

// Dropout(softmax(Q K^T / sqrt(D))) V of every head over the selected blocks -> [B, T, C]. Masked
// tokens get zeros, as do tokens that attend to no token. Any T: the last block may be shorter.
// Differentiable. Dropout equals that of full attention at the same (head, query, key).
[[nodiscard]] Tensor block_sparse_attention(const BlockSparseAttention& inputs,
                                            const BlockSparseOptions& options);

// Returns how many forward passes of block-sparse attention this process has computed, including
// recomputation.
[[nodiscard]] int64_t count_block_sparse_passes();

}  // namespace finetune
