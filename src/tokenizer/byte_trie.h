// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::tokenizer {

// Finds which of many strings a text starts with, one array access for each byte (a double array).
class ByteTrie {
 public:
  ByteTrie() = default;
  // Requires: sorted by string, no string twice or empty, values >= 0, less than 2^31 bytes in all.
  explicit ByteTrie(std::span<const std::pair<std::string_view, int32_t>> strings);

  // Calls found(length, value) for every string that `text` starts with, the shortest first.
  template <class Found>
  void find_prefixes(std::string_view text, const Found& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = units_[node].base ^ static_cast<uint8_t>(text[i]);
      const Unit& unit = units_[next];
      if (unit.parent != node) return;
      node = next;
      if (unit.value >= 0) found(i + 1, unit.value);
    }
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr size_t kBlock = 256;
  struct Unit {
    uint32_t parent = kNone;
    uint32_t base = 0;  // the child by byte b is base ^ b; without children no unit has this parent
    int32_t value = -1;
  };
  class Builder;

  std::vector<Unit> units_ = std::vector<Unit>(kBlock);
};

}  // namespace finetune::tokenizer
