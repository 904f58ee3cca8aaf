// SPDX-License-Identifier: MIT
#include "finetune/data/permutation.h"

#include <algorithm>
#include <bit>

#include "finetune/base/error.h"
#include "finetune/base/random.h"

namespace finetune {

Permutation::Permutation(int64_t size, uint64_t seed, int64_t epoch)
    : size_(static_cast<uint64_t>(size)) {
  FT_CHECK(size >= 1 && size <= kMaxSize, "a permutation has 1 to 2^40 elements");
  // At least one bit on each side, otherwise a round would change nothing.
  const int bits = std::max(2, static_cast<int>(std::bit_width(size_ - 1)));
  right_bits_ = (bits + 1) / 2;
  right_mask_ = (uint64_t{1} << right_bits_) - 1;
  left_mask_ = (uint64_t{1} << (bits - right_bits_)) - 1;
  const uint64_t key =
      random::make_key(seed, random::Purpose::kOrder, static_cast<uint64_t>(epoch));
  for (uint64_t round = 0; round < kRounds; ++round) keys_[round] = random::mix(key ^ (round + 1));
}

int64_t Permutation::operator[](int64_t position) const {
  FT_CHECK(position >= 0 && position < size(), "index out of range");
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> right_bits_;
    uint64_t right = value & right_mask_;
    for (size_t round = 0; round < kRounds; round += 2) {
      left ^= random::mix(keys_[round] ^ right) & left_mask_;
      right ^= random::mix(keys_[round + 1] ^ left) & right_mask_;
    }
    value = left << right_bits_ | right;
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace finetune
