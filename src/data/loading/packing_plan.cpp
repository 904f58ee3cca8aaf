// SPDX-License-Identifier: MIT
#include "finetune/data/packing_plan.h"

#include <algorithm>
#include <numeric>

#include "finetune/base/error.h"

namespace finetune {
namespace {

// Packs samples in order; each row is closed by the first sample that does not fit.
int64_t pack_in_order(int64_t capacity, PackingPlan::Group& group) {
  int64_t row = 0;
  int64_t used = 0;
  for (size_t i = 0; i < group.lengths.size(); ++i) {
    if (used > 0 && used + group.lengths[i] > capacity) {
      ++row;
      used = 0;
    }
    used += group.lengths[i];
    group.row_of[i] = row;
  }
  return row + 1;
}

// First fit decreasing: at most 11/9 of the minimum number of rows plus one; for typical sentence
// lengths, rows are full to within a few percent.
int64_t pack_longest_first(int64_t capacity, PackingPlan::Group& group) {
  const std::vector<int64_t>& lengths = group.lengths;
  group.order.resize(lengths.size());
  std::iota(group.order.begin(), group.order.end(), size_t{0});
  // As stable_sort, without its memory.
  std::ranges::sort(group.order, [&](size_t a, size_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
  });
  std::vector<int64_t>& rooms = group.rooms;
  rooms.clear();
  for (const size_t i : group.order) {
    auto room = std::ranges::find_if(rooms, [&](int64_t free) { return free >= lengths[i]; });
    if (room == rooms.end()) room = rooms.insert(rooms.end(), std::max(capacity, lengths[i]));
    *room -= lengths[i];
    group.row_of[i] = room - rooms.begin();
  }
  return static_cast<int64_t>(rooms.size());
}

}  // namespace

PackingPlan::PackingPlan(const Dataset& dataset, const PackingOptions& options,
                         const ShowStep& show)
    : dataset_(dataset), options_(options), groups_((dataset.size() + kGroup - 1) / kGroup) {
  FT_CHECK(dataset.size() >= 1 && dataset.choices() == 1, "only samples of one row are packed");
  FT_CHECK(options.capacity >= 1, "a row holds tokens");
  first_rows_.reserve(static_cast<size_t>(groups_) + 1);
  first_rows_.push_back(0);
  Group packed;
  LongStep step({.phase = "pack", .doing = "packing samples"}, dataset.size(), show);
  for (int64_t group = 0; group < groups_; ++group) {
    first_rows_.push_back(first_rows_.back() + pack(group, packed));
    step.reach(std::min((group + 1) * kGroup, dataset.size()));
  }
}

void PackingPlan::append(int64_t row, std::vector<int64_t>& samples, Group& group) const {
  FT_CHECK(row >= 0 && row < rows(), "row index out of range");
  const auto after = std::ranges::upper_bound(first_rows_, row);
  const int64_t number = after - first_rows_.begin() - 1;
  static_cast<void>(pack(number, group));
  const int64_t wanted = row - first_rows_[static_cast<size_t>(number)];
  for (size_t i = 0; i < group.samples.size(); ++i) {
    if (group.row_of[i] == wanted) samples.push_back(group.samples[i]);
  }
}

int64_t PackingPlan::pack(int64_t number, Group& group) const {
  constexpr auto kMost = static_cast<size_t>(kGroup);
  for (auto* list : {&group.samples, &group.row_of, &group.lengths, &group.rooms}) {
    list->clear();
    list->reserve(kMost);
  }
  group.order.reserve(kMost);
  const int64_t step = options_.keeps_order ? 1 : groups_;
  const int64_t first = options_.keeps_order ? number * kGroup : number;
  for (int64_t i = 0; i < kGroup && first + i * step < dataset_.size(); ++i) {
    group.samples.push_back(first + i * step);
    group.lengths.push_back(dataset_.length(group.samples.back()));
  }
  group.row_of.resize(group.lengths.size());
  return options_.keeps_order ? pack_in_order(options_.capacity, group)
                              : pack_longest_first(options_.capacity, group);
}

}  // namespace finetune
