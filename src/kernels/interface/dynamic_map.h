// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// One of bitsandbytes' code tables and the search in it.
//
// The nearest code of x is found by a bucket: the exponent and the first seven bits of the mantissa
// of its magnitude. No two boundaries between codes are in one bucket, so an entry stores the code
// at the start of the bucket and the offset at which the next code begins. Ties go to the even
// code, as in bitsandbytes' binary search.
struct DynamicMap {
  static constexpr uint32_t kFirstBucket = (127 - 24) << 7;  // 2^-24, below all boundaries
  static constexpr uint32_t kLastBucket = 127 << 7;          // 1
  static constexpr uint32_t kBuckets = kLastBucket - kFirstBucket + 1;

  std::array<float, 256> values;
  // Bits 0 to 7: the code at the start of the bucket. From bit 8: the smallest value of the lower
  // 16 bits of a magnitude that has the next code (65536: none).
  std::array<uint32_t, kBuckets> buckets;
  // boundaries[k] is the smallest x whose nearest code is k + 1. Tensor operations search it.
  std::array<float, 255> boundaries;
};

const DynamicMap& signed_map();    // code 127 is zero; -1 is missing
const DynamicMap& unsigned_map();  // code 0 is zero

}  // namespace finetune::kernels
