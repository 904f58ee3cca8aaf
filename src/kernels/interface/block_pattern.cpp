// SPDX-License-Identifier: MIT
#include "kernels/interface/block_pattern.h"

#include <algorithm>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/random.h"

namespace finetune::kernels {
namespace {

using Lists = std::vector<std::vector<int32_t>>;

// Returns the blocks that block `row` always attends to: the first, the last and its neighbours.
std::set<int32_t> fixed_blocks(int32_t row, int32_t blocks) {
  std::set<int32_t> fixed = {0, blocks - 1};
  for (int32_t block = row - 1; block <= row + 1; ++block) {
    if (block >= 0 && block < blocks) fixed.insert(block);
  }
  return fixed;
}

std::vector<int32_t> drawn_row(random::Sequence& sequence, int32_t row, int32_t blocks,
                               int64_t random_blocks) {
  std::set<int32_t> seen = fixed_blocks(row, blocks);
  const auto free = static_cast<int64_t>(blocks) - static_cast<int64_t>(seen.size());
  for (int64_t left = std::min(free, random_blocks); left > 0;) {
    const auto block = static_cast<int32_t>(sequence.below(static_cast<uint32_t>(blocks)));
    if (seen.insert(block).second) --left;
  }
  return {seen.begin(), seen.end()};
}

std::vector<int32_t> row_of_transformers(int32_t row, int32_t blocks, int64_t random_blocks) {
  const std::set<int32_t> fixed = fixed_blocks(row, blocks);
  std::vector<int32_t> list(static_cast<size_t>(random_blocks), 0);
  list.insert(list.end(), fixed.begin(), fixed.end());
  return list;
}

std::vector<int32_t> all_blocks(int32_t blocks) {
  std::vector<int32_t> list(static_cast<size_t>(blocks));
  for (int32_t block = 0; block < blocks; ++block) list[static_cast<size_t>(block)] = block;
  return list;
}

}  // namespace

BlockLists::BlockLists(const std::vector<std::vector<int32_t>>& lists, int64_t blocks)
    : blocks_(blocks), starts_{0} {
  for (const std::vector<int32_t>& list : lists) {
    entries_.insert(entries_.end(), list.begin(), list.end());
    starts_.push_back(entries_.size());
  }
}

BlockPattern make_block_pattern(const BlockSparseOptions& options, int64_t layer, int64_t heads,
                                int64_t tokens, bool evaluation) {
  FT_CHECK(options.block_size > 0 && options.random_blocks >= 0 && tokens > 0 && heads > 0,
           "blocks of no tokens");
  const auto blocks = static_cast<int32_t>((tokens + options.block_size - 1) / options.block_size);
  Lists keys(static_cast<size_t>(heads * blocks));
  Lists queries(keys.size());
  for (int64_t head = 0; head < heads; ++head) {
    random::Sequence sequence(random::make_key(
        options.seed, random::Purpose::kAttentionBlocks,
        static_cast<uint64_t>(layer) << 32 | static_cast<uint64_t>(head), uint64_t(blocks)));
    for (int32_t row = 0; row < blocks; ++row) {
      const auto index = static_cast<size_t>(head * blocks + row);
      if (row == 0 || row == blocks - 1) {
        keys[index] = all_blocks(blocks);
      } else if (options.like_transformers && evaluation) {
        keys[index] = row_of_transformers(row, blocks, options.random_blocks);
      } else {
        keys[index] = drawn_row(sequence, row, blocks, options.random_blocks);
      }
      for (const int32_t key : keys[index]) {
        queries[static_cast<size_t>(head * blocks + key)].push_back(row);
      }
    }
  }
  return {.block_size = options.block_size,
          .heads = heads,
          .blocks = blocks,
          .keys = BlockLists(keys, blocks),
          .queries = BlockLists(queries, blocks)};
}

}  // namespace finetune::kernels
