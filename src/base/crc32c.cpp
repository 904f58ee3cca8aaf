// SPDX-License-Identifier: MIT
#include "finetune/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace finetune {
namespace {

// Processes eight bytes at a time (Kounavis and Berry, "Novel table lookup-based algorithms for
// high-performance CRC generation", 2008): table t contains the checksums of a byte followed by t
// zero bytes.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) ? 0x82f63b78U : 0U);
    tables[0][i] = value;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(std::string_view data) {
  uint32_t crc = 0xffffffffU;
  static_assert(std::endian::native == std::endian::little, "bytes are taken as they lie");
  while (data.size() >= 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, data.data(), sizeof(bytes));
    bytes ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(bytes >> (8 * i)) & 0xffU];
    data.remove_prefix(8);
  }
  for (const char c : data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return ~crc;
}

}  // namespace finetune
