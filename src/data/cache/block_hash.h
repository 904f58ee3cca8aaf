// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "finetune/base/hash.h"
#include "finetune/data/token_span.h"

// Hashes columns of blocks in the form that fingerprints of data in memory use: 32-bit ids, 64-bit
// offsets.
namespace finetune {

inline void add_ids(Hasher& hasher, TokenSpan ids) {
  std::array<int32_t, 4096> wide = {};
  auto next = ids.begin();
  for (size_t left = ids.size(); left > 0;) {
    const size_t count = std::min(left, wide.size());
    std::copy_n(next, count, wide.begin());
    hasher.update(wide.data(), count * sizeof(int32_t));
    next += static_cast<std::ptrdiff_t>(count);
    left -= count;
  }
}

// `tokens`: number of tokens before the block. Returns the number up to its end.
inline int64_t add_offsets(Hasher& hasher, std::span<const uint32_t> ends, int64_t tokens) {
  std::vector<int64_t> offsets;
  offsets.reserve(ends.size());
  for (const uint32_t end : ends) offsets.push_back(tokens + int64_t{end});
  hasher.update(offsets.data(), offsets.size() * sizeof(int64_t));
  return offsets.empty() ? tokens : offsets.back();
}

}  // namespace finetune
