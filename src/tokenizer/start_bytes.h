// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace finetune::tokenizer {

// The bytes that something which is looked for may start with.
class StartBytes {
 public:
  void add(uint8_t byte) {
    if (bytes_[byte]) return;
    bytes_[byte] = true;
    only_ = ++count_ == 1 ? std::optional(static_cast<char>(byte)) : std::nullopt;
  }

  // The first place from `from` on that has one of them; the text's size where none has.
  [[nodiscard]] size_t find(std::string_view text, size_t from) const {
    if (only_) return std::min(text.find(*only_, from), text.size());
    while (from < text.size() && !bytes_[static_cast<uint8_t>(text[from])]) ++from;
    return from;
  }

 private:
  std::array<bool, 256> bytes_{};
  int count_ = 0;
  std::optional<char> only_;  // where it is one
};

}  // namespace finetune::tokenizer
