// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "finetune/kernels/block_attention.h"

namespace finetune::kernels {

// For every head and block, the blocks on the other side: ascending, possibly repeated.
class BlockLists {
 public:
  BlockLists() = default;
  // `lists` is indexed by head * blocks + block.
  BlockLists(const std::vector<std::vector<int32_t>>& lists, int64_t blocks);

  [[nodiscard]] std::span<const int32_t> of(int64_t head, int64_t block) const {
    const auto row = static_cast<size_t>(head * blocks_ + block);
    return {entries_.data() + starts_[row], entries_.data() + starts_[row + 1]};
  }

 private:
  int64_t blocks_ = 0;
  std::vector<size_t> starts_;  // CSR: row r is entries_[starts_[r], starts_[r + 1])
  std::vector<int32_t> entries_;
};

// Which blocks of keys each block of queries attends to in one layer.
struct BlockPattern {
  int64_t block_size = 0;
  int64_t heads = 0;
  int64_t blocks = 0;
  BlockLists keys;     // that a block of queries attends to
  BlockLists queries;  // that attend to a block of keys: the transposed lists
};

// Random blocks are drawn from those outside the window that are neither first nor last, without
// repetition; fewer where there are not enough. `evaluation` matters only with
// options.like_transformers.
[[nodiscard]] BlockPattern make_block_pattern(const BlockSparseOptions& options, int64_t layer,
                                              int64_t heads, int64_t tokens, bool evaluation);

}  // namespace finetune::kernels
