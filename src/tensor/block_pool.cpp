// SPDX-License-Identifier: MIT
#include "tensor/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// One page of the system: most tensor sizes are multiples of it, so that four small ones fill the
// hole of one that is four times as large.
constexpr size_t kUnit = 4096;
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
  const size_t size = round_up(std::max<size_t>(bytes, 1), kUnit);
  const std::lock_guard lock(mutex_);
  size_t position = 0;
  if (const auto hole = holes_.lower_bound({size, 0}); hole != holes_.end()) {
    const auto [room, start] = *hole;
    position = start;
    holes_.erase(hole);
    holes_by_position_.erase(start);
    if (room > size) add_hole(start + size, room - size);
  } else {
    // A hole at the end is extended instead of left unused.
    const auto last =
        holes_by_position_.empty() ? holes_by_position_.end() : std::prev(holes_by_position_.end());
    const bool is_at_end = last != holes_by_position_.end() && last->first + last->second == end_;
    position = is_at_end ? last->first : end_;
    if (!extend(position + size)) return nullptr;
    if (is_at_end) {
      holes_.erase({last->second, last->first});
      holes_by_position_.erase(last);
    }
    end_ = position + size;
  }
  blocks_[position] = size;
  return begin_ + position;
}

bool BlockPool::give_back(void* block) {
  const char* const address = static_cast<char*>(block);
  if (begin_ == nullptr || address < begin_ || address >= begin_ + most_) return false;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<size_t>(address - begin_));
  FT_CHECK(found != blocks_.end(), "a block that is not taken is given back");
  size_t position = found->first;
  size_t size = found->second;
  blocks_.erase(found);
  const auto next = holes_by_position_.lower_bound(position);
  if (next != holes_by_position_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == position) {
      position = before->first;
      size += before->second;
      holes_.erase({before->second, before->first});
      holes_by_position_.erase(before);
    }
  }
  if (const auto after = holes_by_position_.find(position + size);
      after != holes_by_position_.end()) {
    size += after->second;
    holes_.erase({after->second, after->first});
    holes_by_position_.erase(after);
  }
  add_hole(position, size);
  return true;
}

void BlockPool::release_holes() {
  const std::lock_guard lock(mutex_);
  for (const auto& [position, size] : holes_by_position_) {
    ::madvise(begin_ + position, size, MADV_DONTNEED);
  }
  if (!holes_by_position_.empty()) {
    const auto last = std::prev(holes_by_position_.end());
    if (last->first + last->second == end_) {
      end_ = last->first;
      holes_.erase({last->second, last->first});
      holes_by_position_.erase(last);
    }
  }
  const size_t kept = round_up(end_, kExtension);
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

void BlockPool::add_hole(size_t position, size_t size) {
  holes_.emplace(size, position);
  holes_by_position_[position] = size;
}

}  // namespace finetune
