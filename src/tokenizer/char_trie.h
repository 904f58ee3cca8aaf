// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::tokenizer {

// Finds which of many strings a text starts with, one look-up for each character. The children of
// all nodes are in one hash table, so its size is proportional to that of the strings.
class CharTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  // What a character leads to.
  struct Step {
    uint32_t parent = 0;
    char32_t character = kNoCharacter;
    uint32_t node = kRoot;  // to continue from; kRoot if no longer string starts this way
    int32_t value = -1;     // of the string that ends here; -1 where none does
  };

  // Of characters, prefixes that strings share counted once: 256 MiB. Vocabularies of a million
  // tokens have a third of them.
  static constexpr size_t kMostSteps = size_t{12} << 20;

  CharTrie() = default;
  // Requires: values >= 0. Of equal strings the last counts. Left out are empty strings and such
  // as are not well-formed UTF-8, which no text starts with. Throws Error(kData), which begins with
  // `where`, for more than `most` steps.
  CharTrie(std::span<const std::pair<std::string_view, int32_t>> strings, const std::string& where,
           size_t most = kMostSteps);

  // Null if no string continues this way.
  [[nodiscard]] const Step* find(uint32_t node, char32_t character) const {
    for (size_t i = slot(node, character);; i = (i + 1) & (steps_.size() - 1)) {
      const Step& step = steps_[i];
      if (step.character == character && step.parent == node) return &step;
      if (step.character == kNoCharacter) return nullptr;
    }
  }

  // Says that find(node, character) will be called soon.
  void prefetch(uint32_t node, char32_t character) const {
    __builtin_prefetch(&steps_[slot(node, character)]);
  }

 private:
  static constexpr char32_t kNoCharacter = std::numeric_limits<char32_t>::max();

  [[nodiscard]] size_t slot(uint32_t node, char32_t character) const {
    const uint64_t key = uint64_t{node} << 21 ^ character;
    return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
  }
  [[nodiscard]] bool add(std::string_view string, int32_t value,
                         size_t most);  // false: there is no room
  Step& find_or_add(uint32_t node, char32_t character);
  void grow();

  std::vector<Step> steps_ = std::vector<Step>(16);  // open addressing, at least a quarter empty
  int shift_ = 64 - std::countr_zero(size_t{16});
  size_t count_ = 0;
  uint32_t nodes_ = 0;  // without the root
};

}  // namespace finetune::tokenizer
