// SPDX-License-Identifier: MIT
#include "tensor/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr size_t kExtension = size_t{64} << 20;  // made accessible at a time

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

BlockPool::BlockPool(size_t most_bytes) {
  void* const memory =
      ::mmap(nullptr, most_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // the address space is limited; every take() then fails
  begin_ = static_cast<char*>(memory);
  most_ = most_bytes;
}

BlockPool::~BlockPool() {
  if (begin_ != nullptr) ::munmap(begin_, most_);
}

void* BlockPool::take(size_t bytes) {
  if (bytes > most_) return nullptr;
  const std::lock_guard lock(mutex_);
  const size_t position = map_.take(bytes, [this](size_t end) { return extend(end); });
  return position == BlockMap::kNowhere ? nullptr : begin_ + position;
}

bool BlockPool::give_back(void* block) {
  const char* const address = static_cast<char*>(block);
  if (begin_ == nullptr || address < begin_ || address >= begin_ + most_) return false;
  const std::lock_guard lock(mutex_);
  FT_CHECK(map_.give_back(static_cast<size_t>(address - begin_)),
           "a block that is not taken is given back");
  return true;
}

void BlockPool::release_holes() {
  const std::lock_guard lock(mutex_);
  map_.release_holes(
      [this](size_t position, size_t size) { ::madvise(begin_ + position, size, MADV_DONTNEED); });
  const size_t kept = round_up(map_.end(), kExtension);
  if (kept >= usable_) return;
  // Mapped again instead of protected, because RLIMIT_DATA counts memory that may have been written
  // to.
  void* const after = begin_ + kept;
  if (::mmap(after, usable_ - kept, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
    usable_ = kept;
  }
}

bool BlockPool::extend(size_t bytes) {
  if (bytes <= usable_) return true;
  if (bytes > most_) return false;
  const size_t wanted = std::min(most_, round_up(bytes, kExtension));
  if (::mprotect(begin_ + usable_, wanted - usable_, PROT_READ | PROT_WRITE) != 0) return false;
  usable_ = wanted;
  return true;
}

}  // namespace finetune
