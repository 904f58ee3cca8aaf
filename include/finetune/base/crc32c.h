// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace finetune {

// CRC-32C (Castagnoli), as iSCSI and TFRecord use it.
[[nodiscard]] uint32_t crc32c(std::string_view data);

// Rotated and offset as TFRecord does, because a checksum of data that holds its own checksum is
// weak.
[[nodiscard]] inline uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8U;
}

}  // namespace finetune
