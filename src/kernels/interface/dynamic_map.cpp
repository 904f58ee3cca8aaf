// SPDX-License-Identifier: MIT
#include "kernels/interface/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "finetune/base/error.h"

namespace finetune::kernels {
namespace {

constexpr int kExponents = 7;

// torch.linspace(0.1, 1, count) in float32.
std::vector<float> decade(int count) {
  const float step = (1.0F - 0.1F) / static_cast<float>(count - 1);
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    const bool is_lower = i < count / 2;
    values.push_back(is_lower ? 0.1F + step * static_cast<float>(i)
                              : 1.0F - step * static_cast<float>(count - 1 - i));
  }
  return values;
}

std::array<float, 256> make_values(bool is_signed) {
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kExponents; ++i) {
    const std::vector<float> ends = decade((is_signed ? 1 << i : 2 << i) + 1);
    const auto scale = static_cast<float>(std::pow(10.0, i - (kExponents - 1)));
    for (size_t j = 0; j + 1 < ends.size(); ++j) {
      const float value = scale * ((ends[j] + ends[j + 1]) / 2.0F);
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  FT_CHECK(values.size() == 256, "a code has eight bits");
  std::ranges::sort(values);
  std::array<float, 256> sorted{};
  std::ranges::copy(values, sorted.begin());
  return sorted;
}

DynamicMap make_map(bool is_signed) {
  DynamicMap map{.values = make_values(is_signed), .buckets = {}, .boundaries = {}};
  for (size_t k = 0; k < map.boundaries.size(); ++k) {
    const float middle = (map.values[k] + map.values[k + 1]) * 0.5F;
    map.boundaries[k] =
        k % 2 == 0 ? std::nextafter(middle, std::numeric_limits<float>::infinity()) : middle;
  }
  const auto code_of = [&](uint32_t bits) {
    const auto above = std::ranges::upper_bound(map.boundaries, std::bit_cast<float>(bits));
    return static_cast<uint32_t>(above - map.boundaries.begin());
  };
  for (uint32_t i = 0; i < DynamicMap::kBuckets; ++i) {
    const uint32_t begin = (DynamicMap::kFirstBucket + i) << 16;
    const uint32_t first = code_of(begin);
    const uint32_t last = i + 1 == DynamicMap::kBuckets ? first : code_of(begin | 0xFFFF);
    FT_CHECK(last - first <= 1, "one boundary a bucket");
    const uint32_t position =
        last == first ? 65536 : std::bit_cast<uint32_t>(map.boundaries[first]) & 0xFFFF;
    map.buckets[i] = position << 8 | first;
  }
  return map;
}

}  // namespace

const DynamicMap& signed_map() {
  static const DynamicMap map = make_map(true);
  return map;
}

const DynamicMap& unsigned_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

}  // namespace finetune::kernels
