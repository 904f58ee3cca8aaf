// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune {

// The order of samples in an epoch: a permutation of [0, size) as a function of (seed, epoch).
// Nothing is stored and any index takes constant time, so a resumed run starts in the middle of an
// epoch at no cost. The permutation is part of the checkpoint format.
//
// A Feistel network over the smallest power of two of at least `size`, applied repeatedly until the
// result is below `size` (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002);
// takes fewer than two applications on average.
class Permutation {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 40;

  Permutation(int64_t size, uint64_t seed, int64_t epoch);  // Requires: 1 <= size <= kMaxSize

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(size_); }
  // Returns the sample at index `position`. Requires: 0 <= position < size().
  [[nodiscard]] int64_t operator[](int64_t position) const;

 private:
  static constexpr int kRounds = 12;

  uint64_t size_;
  int right_bits_;
  uint64_t left_mask_;
  uint64_t right_mask_;
  std::array<uint64_t, kRounds> keys_;
};

// The seed of what is drawn for one sample, whatever is drawn for others.
[[nodiscard]] constexpr uint64_t seed_of_sample(uint64_t seed, int64_t index) {
  return seed ^ (static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15);
}

}  // namespace finetune
