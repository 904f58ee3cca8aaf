// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace finetune {

// Where the blocks of a pool lie: best fit, at the lowest address among equal holes; neighbouring
// holes are merged, and a hole at the end is extended instead of left unused. Without memory, so
// that a plan can follow what a pool (block_pool.h) does.
class BlockMap {
 public:
  // Blocks of at least this many bytes come from the pool.
  static constexpr size_t kSmallest = size_t{1} << 20;

  // Returns the offset of a new block. `extend` is called with the new end if that is beyond the
  // last one; where it returns false nothing is taken.
  static constexpr size_t kNowhere = ~size_t{0};
  [[nodiscard]] size_t take(size_t bytes, const std::function<bool(size_t end)>& extend = {});
  // Returns false if no block begins there.
  bool give_back(size_t offset);
  // After the last block, or the hole that follows it.
  [[nodiscard]] size_t end() const { return end_; }
  // Calls `visit` with offset and size of every hole, then forgets one at the end.
  void release_holes(const std::function<void(size_t offset, size_t size)>& visit);

 private:
  void add_hole(size_t position, size_t size);
  void erase_hole(size_t position, size_t size);

  size_t end_ = 0;
  std::set<std::pair<size_t, size_t>> holes_;  // size and offset
  std::map<size_t, size_t> holes_by_position_;
  std::map<size_t, size_t> blocks_;  // offset and size
};

}  // namespace finetune
