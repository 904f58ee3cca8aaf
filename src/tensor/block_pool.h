// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace finetune {

// A separate pool for large blocks of host memory that every step allocates and frees: small blocks
// in the holes of large ones would prevent their reuse. Best fit, at the lowest address among equal
// holes; neighbouring holes are merged. Memory is returned to the system only on request.
// Thread-safe.
class BlockPool {
 public:
  explicit BlockPool(size_t most_bytes);  // address range; memory is allocated on first use
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Returns a page-aligned block; null if the system refuses.
  [[nodiscard]] void* take(size_t bytes);
  // Returns false if the block is not from this pool.
  bool give_back(void* block);
  // Returns the memory of all holes to the system, and the address range after the last block.
  void release_holes();

 private:
  using Hole = std::pair<size_t, size_t>;  // size and offset

  bool extend(size_t bytes);
  void add_hole(size_t position, size_t size);

  char* begin_ = nullptr;
  size_t most_ = 0;
  size_t usable_ = 0;  // bytes that may be accessed
  size_t end_ = 0;     // after the last block
  std::set<Hole> holes_;
  std::map<size_t, size_t> holes_by_position_;
  std::map<size_t, size_t> blocks_;  // offset and size
  std::mutex mutex_;
};

}  // namespace finetune
