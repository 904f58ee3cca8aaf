// SPDX-License-Identifier: MIT
#include "finetune/tensor/block_map.h"

#include <algorithm>
#include <iterator>

namespace finetune {
namespace {

// One page of the system: most tensor sizes are multiples of it, so that four small ones fill the
// hole of one that is four times as large.
constexpr size_t kUnit = 4096;

}  // namespace

size_t BlockMap::take(size_t bytes, const std::function<bool(size_t end)>& extend) {
  const size_t size = (std::max<size_t>(bytes, 1) + kUnit - 1) / kUnit * kUnit;
  size_t position = end_;
  if (const auto hole = holes_.lower_bound({size, 0}); hole != holes_.end()) {
    const auto [room, start] = *hole;
    position = start;
    erase_hole(start, room);
    if (room > size) add_hole(start + size, room - size);
  } else {
    const auto last =
        holes_by_position_.empty() ? holes_by_position_.end() : std::prev(holes_by_position_.end());
    const bool is_at_end = last != holes_by_position_.end() && last->first + last->second == end_;
    if (is_at_end) position = last->first;
    if (extend && !extend(position + size)) return kNowhere;
    if (is_at_end) erase_hole(last->first, last->second);
    end_ = position + size;
  }
  blocks_[position] = size;
  return position;
}

bool BlockMap::give_back(size_t offset) {
  const auto found = blocks_.find(offset);
  if (found == blocks_.end()) return false;
  size_t position = found->first;
  size_t size = found->second;
  blocks_.erase(found);
  const auto next = holes_by_position_.lower_bound(position);
  if (next != holes_by_position_.begin()) {
    const size_t before = std::prev(next)->first;
    const size_t room = std::prev(next)->second;
    if (before + room == position) {
      erase_hole(before, room);
      position = before;
      size += room;
    }
  }
  if (const auto after = holes_by_position_.find(position + size);
      after != holes_by_position_.end()) {
    const size_t room = after->second;
    erase_hole(after->first, room);
    size += room;
  }
  add_hole(position, size);
  return true;
}

void BlockMap::release_holes(const std::function<void(size_t offset, size_t size)>& visit) {
  for (const auto& [position, size] : holes_by_position_) visit(position, size);
  if (holes_by_position_.empty()) return;
  const size_t position = std::prev(holes_by_position_.end())->first;
  const size_t size = std::prev(holes_by_position_.end())->second;
  if (position + size != end_) return;
  erase_hole(position, size);
  end_ = position;
}

void BlockMap::add_hole(size_t position, size_t size) {
  holes_.emplace(size, position);
  holes_by_position_[position] = size;
}

void BlockMap::erase_hole(size_t position, size_t size) {
  holes_.erase({size, position});
  holes_by_position_.erase(position);
}

}  // namespace finetune
