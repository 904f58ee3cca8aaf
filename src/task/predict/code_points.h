// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Converts byte offsets of a UTF-8 text to code points, as Python counts them.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) {
    before_.reserve(text.size() + 1);
    int64_t count = 0;
    for (const char c : text) {
      before_.push_back(count);
      if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++count;
    }
    before_.push_back(count);
  }

  [[nodiscard]] int64_t at(int64_t byte) const { return before_[static_cast<size_t>(byte)]; }
  [[nodiscard]] int64_t size() const { return before_.back(); }

 private:
  std::vector<int64_t> before_;  // for each byte, the number of code points that begin before it
};

}  // namespace finetune
