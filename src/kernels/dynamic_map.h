// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// One of bitsandbytes' code tables and the search in it.
//
// The nearest code of x is found by its magnitude's sign, exponent and first seven bits of
// mantissa: no two boundaries between codes fall into one such bucket, so an entry is the code at
// the bucket's beginning and the place in the bucket from which on it is the next one. Ties go
// where bitsandbytes' binary search takes them, to the even code.
struct DynamicMap {
  static constexpr uint32_t kFirstBucket = (127 - 24) << 7;  // 2^-24, below all boundaries
  static constexpr uint32_t kLastBucket = 127 << 7;          // 1
  static constexpr uint32_t kBuckets = kLastBucket - kFirstBucket + 1;

  std::array<float, 256> values;
  // Code of magnitudes at a bucket's beginning, and from bit 8 on the first 16 last bits of a
  // magnitude that has the next one (65536: none).
  std::array<uint32_t, kBuckets> buckets;
  // values[code] <= the code's magnitudes: smallest x of code k + 1. For tensor operations.
  std::array<float, 255> boundaries;
};

const DynamicMap& signed_map();    // 127 is zero; -1 is missing
const DynamicMap& unsigned_map();  // 0 is zero

}  // namespace finetune::kernels
