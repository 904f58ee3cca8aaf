// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/truncation.h"

#include <algorithm>

namespace finetune {
namespace {

PairLengths longest_first(PairLengths lengths, int64_t room) {
  const bool swap = lengths.first > lengths.second;
  int64_t shorter = std::min(lengths.first, lengths.second);
  int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
  if (shorter + longer > room) {
    shorter = room / 2;
    longer = shorter + room % 2;
  }
  return swap ? PairLengths{longer, shorter} : PairLengths{shorter, longer};
}

}  // namespace

std::optional<PairLengths> truncate(PairLengths lengths, int64_t room, Truncation strategy) {
  if (room <= 0) return PairLengths{};
  const int64_t excess = lengths.first + lengths.second - room;
  if (excess <= 0) return lengths;
  switch (strategy) {
    case Truncation::kLongestFirst:
      return longest_first(lengths, room);
    case Truncation::kOnlyFirst:
      if (lengths.first <= excess) return std::nullopt;
      return PairLengths{lengths.first - excess, lengths.second};
    case Truncation::kOnlySecond:
      if (lengths.second <= excess) return std::nullopt;
      return PairLengths{lengths.first, lengths.second - excess};
  }
  return lengths;
}

}  // namespace finetune
