// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalized_text.h"
#include "tokenizer/start_bytes.h"

namespace finetune::tokenizer {

// What Replace and Split look for: a string, or a regular expression of the simple kind that
// tokenizers use: alternatives of characters and character classes with quantifiers, without
// groups. Never handed to a library; matching ends after a bounded number of steps.
class Pattern {
 public:
  using Match = NormalizedText::Match;

  // Reads {"String": "..."} or {"Regex": "..."}. Throws Error(kData) for what is not supported.
  Pattern(const nlohmann::ordered_json& json, const std::string& where);

  // All matches, from left to right, as the tokenizers package finds them. Throws Error(kData)
  // where a regular expression takes too long on this text.
  [[nodiscard]] std::vector<Match> find_all(std::string_view text) const;
  // find_all() for matches that `content` is put in the place of: Error(kData) also where the text
  // would grow beyond 256 MiB, as a chain of them could make it.
  [[nodiscard]] std::vector<Match> find_replaced(std::string_view text,
                                                 std::string_view content) const;

 private:
  friend class PatternReader;

  enum class Class : uint8_t { kLiteral, kSpace, kLetter, kNumber, kWord, kAnyButNewline };
  // A class of characters, or those from `first` to `last`.
  struct Atom {
    Class kind = Class::kLiteral;
    bool negated = false;
    char32_t first = 0;
    char32_t last = 0;
  };
  struct Item {
    std::vector<Atom> atoms{};  // any of them ...
    bool negated = false;       // ... or none of them
    uint32_t min = 1;
    uint32_t max = 1;
    bool possessive = false;  // gives nothing back
    bool not_ahead = false;   // (?!x): takes nothing
  };
  using Alternative = std::vector<Item>;

  [[nodiscard]] static bool accepts(const Atom& atom, char32_t c);
  [[nodiscard]] static bool accepts(const Item& item, char32_t c);
  // Notes which bytes a match of `items` may start with.
  void add_starts(const Alternative& items);
  // The end of the match of `items` from `index` on at `at`; npos where there is none.
  [[nodiscard]] size_t match(const Alternative& items, size_t index, std::string_view text,
                             size_t at, uint64_t& steps) const;

  std::string literal_;
  std::vector<Alternative> alternatives_;  // empty for a literal
  StartBytes starts_;                      // of the alternatives
};

}  // namespace finetune::tokenizer
