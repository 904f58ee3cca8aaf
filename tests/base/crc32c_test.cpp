// SPDX-License-Identifier: MIT
#include "finetune/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune::testing {
namespace {

// RFC 3720, section B.4
TEST(Crc32c, IsTheStandards) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, IsMaskedAsTensorFlowMasksIt) {
  // The length 18 as eight bytes, and the checksum that follows it in TensorFlow's files.
  EXPECT_EQ(masked_crc32c(std::string("\x12\0\0\0\0\0\0\0", 8)), 0x25641f24U);
}

}  // namespace
}  // namespace finetune::testing
