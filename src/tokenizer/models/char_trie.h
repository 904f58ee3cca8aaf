// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace finetune::tokenizer {

// Finds which of many strings a text starts with, with one look-up per character. The children of a
// node are neighbours in memory, and nothing is stored for characters that do not continue, because
// the trie of a vocabulary should fit a core's cache.
class CharTrie {
 public:
  // An edge of the trie: the result of one character.
  struct Step {
    uint64_t continuing = 0;  // a bit for the low six bits of each character that may follow
    uint32_t children = 0;    // the position of the first step after this one
    uint32_t same_bits =
        0;  // the position of a step of the same parent whose low bits are the same
    char32_t character = 0;
    int32_t value = -1;  // of the string that ends here; -1: none
  };

  // Maximum number of edges, counting shared prefixes once: 256 MiB while the trie is made.
  // Vocabularies of a million tokens need two thirds of that.
  static constexpr size_t kMostSteps = size_t{6} << 20;

  CharTrie() = default;
  // Requires: values >= 0. Of equal strings the last one wins. Empty and ill-formed strings, which
  // no text starts with, are skipped. Throws Error(kData), which begins with `where`, for more than
  // `most` edges.
  CharTrie(std::span<const std::pair<std::string_view, int32_t>> strings, const std::string& where,
           size_t most = kMostSteps);

  // Returns the step of a text's first character; null if no string starts with it.
  [[nodiscard]] const Step* first(char32_t character) const {
    if (character >= first_.size()) return next(root_, character);
    const uint32_t found = first_[character];
    return found == 0 ? nullptr : &steps_[found];
  }
  // Returns the step of the next character; null if no string continues with it.
  [[nodiscard]] const Step* next(const Step& step, char32_t character) const {
    const uint64_t bit = uint64_t{1} << (character & 63);
    if ((step.continuing & bit) == 0) return nullptr;
    const Step* found = &steps_[step.children + count_bits(step.continuing & (bit - 1))];
    while (found->character != character) {
      if (found->same_bits == 0) return nullptr;
      found = &steps_[found->same_bits];
    }
    return found;
  }
  // Prefetches the memory that next(step, character) will read.
  void prefetch_next(const Step& step, char32_t character) const {
    const uint64_t bit = uint64_t{1} << (character & 63);
    if ((step.continuing & bit) == 0) return;
    __builtin_prefetch(&steps_[step.children + count_bits(step.continuing & (bit - 1))]);
  }

 private:
  static constexpr char32_t kFirstEnd = 0x10000;
  struct Edge;
  class Edges;

  // Not std::popcount(), which is a function call for processors without that instruction.
  [[nodiscard]] static uint32_t count_bits(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return static_cast<uint32_t>(bits * 0x0101010101010101u >> 56);
  }
  // Appends the children of a node to the steps and sets `continuing` and `children` of
  // its own step.
  void append_children(std::span<Edge> edges, Step& parent);

  Step root_;
  std::vector<Step> steps_ = std::vector<Step>(1);  // the first position stands for none
  std::vector<uint32_t> first_;  // by character below kFirstEnd: its step from the root; 0: none
};

}  // namespace finetune::tokenizer
