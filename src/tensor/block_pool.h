// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace finetune {

// Large blocks of host memory that every step takes and frees, apart from all small ones: a small
// block in the hole that a large one left would keep the next large one out. The smallest hole that
// is large enough is taken, the lowest of equal ones; neighbouring holes are one. Nothing is given
// back to the system unless it is asked for. Safe to use from several threads.
class BlockPool {
 public:
  explicit BlockPool(size_t most_bytes);  // of addresses; memory is taken with the first use
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Aligned to pages; null where the system gives no more.
  [[nodiscard]] void* take(size_t bytes);
  // False where the block is not of this pool.
  bool give_back(void* block);
  // Returns the memory of all holes to the system, and the addresses after the last block.
  void release_holes();

 private:
  using Hole = std::pair<size_t, size_t>;  // size and place

  bool extend(size_t bytes);
  void add_hole(size_t place, size_t size);

  char* begin_ = nullptr;
  size_t most_ = 0;
  size_t usable_ = 0;  // the rest may not be touched yet
  size_t end_ = 0;     // after the last block
  std::set<Hole> holes_;
  std::map<size_t, size_t> holes_by_place_;
  std::map<size_t, size_t> blocks_;  // place and size
  std::mutex mutex_;
};

}  // namespace finetune
