// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace finetune::tokenizer {

// The possible first bytes of a set of strings.
class StartBytes {
 public:
  void add(uint8_t byte) {
    if (bytes_[byte]) return;
    bytes_[byte] = true;
    only_ = ++count_ == 1 ? std::optional(static_cast<char>(byte)) : std::nullopt;
  }

  // Returns the first position from `from` on with one of the bytes; the text's size if there is
  // none.
  [[nodiscard]] size_t find(std::string_view text, size_t from) const {
    if (only_) return std::min(text.find(*only_, from), text.size());
    while (from < text.size() && !bytes_[static_cast<uint8_t>(text[from])]) ++from;
    return from;
  }

 private:
  std::array<bool, 256> bytes_{};
  int count_ = 0;
  std::optional<char> only_;  // if there is exactly one
};

}  // namespace finetune::tokenizer
