// SPDX-License-Identifier: MIT
#include "export/ggml_type.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/tensor/tensor.h"

namespace finetune {
namespace {

constexpr size_t kBlock = 32;
constexpr size_t kScaleBytes = 2;  // float16
// What is rounded to infinity begins here.
constexpr float kLargestHalf = 65520.0F;
constexpr float kLargestBFloat16 = 3.3961775e38F;

void encode_values(std::span<const float> values, at::ScalarType type, uint8_t* bytes) {
  const Tensor wide = at::from_blob(const_cast<float*>(values.data()),
                                    {static_cast<int64_t>(values.size())}, at::kFloat);
  const Tensor narrow = wide.to(type);
  std::memcpy(bytes, narrow.const_data_ptr(), narrow.nbytes());
}

void put_scale(float scale, uint8_t* bytes) {
  const c10::Half half(scale);
  std::memcpy(bytes, &half, kScaleBytes);
}

// Half away from zero, exactly, as roundf(). Requires: |x| < 2^30.
int32_t rounded(float x) {
  const float magnitude = std::fabs(x);
  const auto whole = static_cast<int32_t>(magnitude);
  const int32_t nearest = whole + (magnitude - static_cast<float>(whole) >= 0.5F ? 1 : 0);
  return x < 0.0F ? -nearest : nearest;
}

// Returns the largest magnitude. Of finite numbers the bits have the order of the magnitudes, and
// the maximum of integers is computed several at a time.
float largest_of(const float* values, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7FFFFFFF);
  }
  return std::bit_cast<float>(largest);
}

void encode_q8_0(const float* values, uint8_t* bytes) {
  const float largest = largest_of(values, kBlock);
  const float scale = largest / 127.0F;
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  put_scale(scale, bytes);
  int8_t codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) codes[i] = static_cast<int8_t>(rounded(values[i] * inverse));
  std::memcpy(bytes + kScaleBytes, codes, kBlock);
}

void encode_q4_0(const float* values, uint8_t* bytes) {
  float extreme = 0.0F;  // the first of the largest magnitude
  for (size_t i = 0; i < kBlock; ++i) {
    if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
  }
  const float scale = extreme / -8.0F;
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  put_scale(scale, bytes);
  const auto code = [&](size_t i) {
    return static_cast<uint8_t>(std::min(static_cast<int32_t>(values[i] * inverse + 8.5F), 15));
  };
  for (size_t i = 0; i < kBlock / 2; ++i) {
    bytes[kScaleBytes + i] = static_cast<uint8_t>(code(i) | code(i + kBlock / 2) << 4);
  }
}

}  // namespace

const GgmlTraits& traits_of(GgmlType type) {
  static constexpr GgmlTraits kF32 = {"f32", 1, 4, 0};
  static constexpr GgmlTraits kF16 = {"f16", 1, 2, 1};
  static constexpr GgmlTraits kBF16 = {"bf16", 1, 2, 32};
  static constexpr GgmlTraits kQ8 = {"q8_0", kBlock, kScaleBytes + kBlock, 7};
  static constexpr GgmlTraits kQ4 = {"q4_0", kBlock, kScaleBytes + kBlock / 2, 2};
  switch (type) {
    case GgmlType::kF32:
      return kF32;
    case GgmlType::kF16:
      return kF16;
    case GgmlType::kBF16:
      return kBF16;
    case GgmlType::kQ8_0:
      return kQ8;
    case GgmlType::kQ4_0:
      return kQ4;
  }
  FT_CHECK(false, "unknown GgmlType");
}

bool encode_ggml(GgmlType type, std::span<const float> values, uint8_t* bytes) {
  const GgmlTraits& traits = traits_of(type);
  FT_CHECK(values.size() % traits.block_values == 0, "whole blocks");
  const float largest = largest_of(values.data(), values.size());
  float most = std::numeric_limits<float>::infinity();
  const auto encode_blocks = [&](void (*encode)(const float*, uint8_t*)) {
    for (size_t i = 0; i < values.size(); i += kBlock, bytes += traits.block_bytes) {
      encode(values.data() + i, bytes);
    }
  };
  switch (type) {
    case GgmlType::kF32:
      std::memcpy(bytes, values.data(), values.size_bytes());
      break;
    case GgmlType::kF16:
      most = kLargestHalf;
      encode_values(values, at::kHalf, bytes);
      break;
    case GgmlType::kBF16:
      most = kLargestBFloat16;
      encode_values(values, at::kBFloat16, bytes);
      break;
    case GgmlType::kQ8_0:
      most = kLargestHalf * 127.0F;
      encode_blocks(encode_q8_0);
      break;
    case GgmlType::kQ4_0:
      most = kLargestHalf * 8.0F;
      encode_blocks(encode_q4_0);
      break;
  }
  return largest < most;
}

}  // namespace finetune
