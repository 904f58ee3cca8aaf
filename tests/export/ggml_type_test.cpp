// SPDX-License-Identifier: MIT
// Blocks at the edges of the formulas; tests/parity/test_export.py compares whole models with the
// gguf package.
#include "export/ggml_type.h"

#include <c10/util/Half.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace finetune {
namespace {

std::vector<uint8_t> encoded(GgmlType type, const std::vector<float>& values) {
  const GgmlTraits& traits = traits_of(type);
  std::vector<uint8_t> bytes(values.size() / traits.block_values * traits.block_bytes);
  EXPECT_TRUE(encode_ggml(type, values, bytes.data()));
  return bytes;
}

float scale_of(const std::vector<uint8_t>& bytes) {
  c10::Half scale;
  std::memcpy(&scale, bytes.data(), sizeof(scale));
  return scale;
}

TEST(GgmlType, RoundsHalvesAwayFromZeroInQ8) {
  std::vector<float> values(32, 0.0F);
  values[0] = 127.0F;  // the scale is 1
  values[1] = 0.5F;
  values[2] = -0.5F;
  values[3] = 0.49999997F;
  values[4] = 2.5F;
  values[5] = -126.5F;
  const std::vector<uint8_t> bytes = encoded(GgmlType::kQ8_0, values);
  ASSERT_EQ(bytes.size(), 34);
  EXPECT_EQ(scale_of(bytes), 1.0F);
  const auto code = [&](size_t i) { return static_cast<int>(static_cast<int8_t>(bytes[2 + i])); };
  EXPECT_EQ(code(0), 127);
  EXPECT_EQ(code(1), 1);
  EXPECT_EQ(code(2), -1);
  EXPECT_EQ(code(3), 0);
  EXPECT_EQ(code(4), 3);
  EXPECT_EQ(code(5), -127);
}

TEST(GgmlType, RoundsAsRoundfInQ8) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
  for (int block = 0; block < 2000; ++block) {
    std::vector<float> values(32);
    float largest = 0.0F;
    for (float& value : values) {
      value = uniform(random);
      largest = std::max(largest, std::fabs(value));
    }
    const std::vector<uint8_t> bytes = encoded(GgmlType::kQ8_0, values);
    const float inverse = 1.0F / (largest / 127.0F);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(static_cast<int8_t>(bytes[2 + i]), std::roundf(values[i] * inverse));
    }
  }
}

TEST(GgmlType, GivesTheExtremeOfABlockTheCode0InQ4) {
  std::vector<float> values(32, 0.0F);
  values[3] = -4.0F;
  values[20] = 4.0F;  // the first of the largest decides
  const std::vector<uint8_t> bytes = encoded(GgmlType::kQ4_0, values);
  ASSERT_EQ(bytes.size(), 18);
  EXPECT_EQ(scale_of(bytes), 0.5F);
  EXPECT_EQ(bytes[2 + 3] & 15, 0);
  EXPECT_EQ(bytes[2 + 4] >> 4, 15);  // 16 does not fit
  EXPECT_EQ(bytes[2], 0x88);
}

TEST(GgmlType, ReportsValuesBeyondItsRange) {
  std::vector<float> values(32, 1.0F);
  uint8_t bytes[128];
  const auto fits = [&](GgmlType type, float value) {
    values[7] = value;
    return encode_ggml(type, values, bytes);
  };
  EXPECT_TRUE(fits(GgmlType::kF16, 65504.0F));
  EXPECT_FALSE(fits(GgmlType::kF16, -65520.0F));
  EXPECT_TRUE(fits(GgmlType::kBF16, 1e38F));
  EXPECT_FALSE(fits(GgmlType::kBF16, std::numeric_limits<float>::max()));
  EXPECT_TRUE(fits(GgmlType::kQ8_0, 8e6F));
  EXPECT_FALSE(fits(GgmlType::kQ8_0, 1e8F));
  EXPECT_FALSE(fits(GgmlType::kQ4_0, -1e6F));
}

TEST(GgmlType, WritesBlocksOfZeros) {
  const std::vector<float> zeros(64, 0.0F);
  EXPECT_EQ(encoded(GgmlType::kQ8_0, zeros), std::vector<uint8_t>(68, 0));
  const std::vector<uint8_t> bytes = encoded(GgmlType::kQ4_0, zeros);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[2], 0x88);
}

}  // namespace
}  // namespace finetune
