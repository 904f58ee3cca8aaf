// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace finetune {

// CRC-32C (Castagnoli) as in iSCSI and TFRecord.
[[nodiscard]] uint32_t crc32c(std::string_view data);

// The checksum rotated and offset as in TFRecord, because a CRC of data that contains its own CRC
// is weak.
[[nodiscard]] inline uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8U;
}

}  // namespace finetune
