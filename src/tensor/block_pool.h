// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <mutex>

#include "finetune/tensor/block_map.h"

namespace finetune {

// A separate pool for large blocks of host memory that every step allocates and frees: small blocks
// in the holes of large ones would prevent their reuse. They lie as BlockMap says. Memory is
// returned to the system only on request. Thread-safe.
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
  bool extend(size_t bytes);

  char* begin_ = nullptr;
  size_t most_ = 0;
  size_t usable_ = 0;  // bytes that may be accessed
  BlockMap map_;
  std::mutex mutex_;
};

}  // namespace finetune
