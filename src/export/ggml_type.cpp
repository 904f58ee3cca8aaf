// SPDX-License-Identifier: MIT
#include "export/ggml_type.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <limits>

#include "finetune/base/error.h"
#include "finetune/kernels/ggml_blocks.h"
#include "finetune/tensor/tensor.h"

namespace finetune {
namespace {

constexpr size_t kBlock = kGgmlBlock;
constexpr size_t kScaleBytes = kGgmlScaleBytes;
// What is rounded to infinity begins here.
constexpr float kLargestHalf = 65520.0F;
constexpr float kLargestBFloat16 = 3.3961775e38F;

void encode_values(std::span<const float> values, at::ScalarType type, uint8_t* bytes) {
  const auto count = static_cast<int64_t>(values.size());
  at::from_blob(bytes, {count}, type)
      .copy_(at::from_blob(const_cast<float*>(values.data()), {count}, at::kFloat));
}

void decode_values(at::ScalarType type, const uint8_t* bytes, std::span<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  at::from_blob(values.data(), {count}, at::kFloat)
      .copy_(at::from_blob(const_cast<uint8_t*>(bytes), {count}, type));
}

float scale_of(const uint8_t* block) {
  at::Half scale;
  std::memcpy(&scale, block, kScaleBytes);
  return scale;
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
  const size_t blocks = values.size() / traits.block_values;
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
      encode_q8_0(values.data(), blocks, bytes);
      break;
    case GgmlType::kQ4_0:
      most = kLargestHalf * 8.0F;
      encode_q4_0(values.data(), blocks, bytes);
      break;
  }
  return largest < most;
}

void decode_ggml(GgmlType type, const uint8_t* bytes, std::span<float> values) {
  switch (type) {
    case GgmlType::kF32:
      return decode_values(at::kFloat, bytes, values);
    case GgmlType::kF16:
      return decode_values(at::kHalf, bytes, values);
    case GgmlType::kBF16:
      return decode_values(at::kBFloat16, bytes, values);
    case GgmlType::kQ8_0:
      for (size_t i = 0; i < values.size(); ++i) {
        const uint8_t* block = bytes + i / kBlock * traits_of(type).block_bytes;
        values[i] = scale_of(block) * static_cast<int8_t>(block[kScaleBytes + i % kBlock]);
      }
      return;
    case GgmlType::kQ4_0:  // the first half of a block is in the low bits
      for (size_t i = 0; i < values.size(); ++i) {
        const uint8_t* block = bytes + i / kBlock * traits_of(type).block_bytes;
        const size_t at = i % kBlock;
        const int pair = block[kScaleBytes + at % (kBlock / 2)];
        const int code = at < kBlock / 2 ? pair & 15 : pair >> 4;
        values[i] = scale_of(block) * static_cast<float>(code - 8);
      }
      return;
  }
}

}  // namespace finetune
