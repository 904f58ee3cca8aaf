// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// A character of a changed text and how it came about, as the tokenizers package counts:
//   0   it replaces the next character
//   1   it is new, at the position of the one before it
//  -N   it replaces the next character, and the N after that one are removed
struct CharChange {
  char32_t c;
  int32_t change;
};

// A text on its way through normalisers and pre-tokenisers, with where each of its bytes comes
// from: NormalizedString of the tokenizers package. Without origins (where nobody asks for ranges)
// only the text is kept.
class NormalizedText {
 public:
  // Bytes [begin, end) of the text as it was given.
  struct Origin {
    uint32_t begin = 0;
    uint32_t end = 0;
    bool operator==(const Origin&) const = default;
  };

  NormalizedText() = default;
  // `text` is at offset `begin` of the original text. Requires: valid UTF-8, < 4 GiB.
  NormalizedText(std::string_view text, uint32_t begin, bool with_origins);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  [[nodiscard]] bool has_origins() const { return with_origins_; }
  // Where it started when it was last cut out; 0 without origins.
  [[nodiscard]] uint32_t begin() const { return begin_; }
  // Where the bytes [begin, end) come from. Requires: has_origins().
  [[nodiscard]] Origin origin(size_t begin, size_t end) const;

  // Makes `text` the text. Requires: !has_origins().
  void assign(std::string text);

  [[nodiscard]] NormalizedText slice(size_t begin, size_t end) const;

  // Makes `changes` the text; the first `skipped` characters are gone.
  void transform(const std::vector<CharChange>& changes, size_t skipped = 0);
  // Keeps the characters for which keep(char32_t) is true.
  template <class Keep>
  void filter(const Keep& keep);
  // Turns each character c into map(c).
  template <class Map>
  void map(const Map& map);
  // Puts `content` in the place of each of `matches`, which are in order and do not overlap.
  struct Match {
    size_t begin;
    size_t end;
  };
  void replace(const std::vector<Match>& matches, std::string_view content);
  void prepend(std::string_view content);  // nothing where the text is empty
  void strip(bool left, bool right);       // white space
  // Each byte becomes its character of byte-level vocabularies.
  void to_byte_level();

 private:
  [[nodiscard]] std::u32string characters() const;

  std::string text_;
  std::vector<Origin> origins_;  // one for each byte of text_
  uint32_t begin_ = 0;
  bool with_origins_ = false;
};

template <class Keep>
void NormalizedText::filter(const Keep& keep) {
  std::vector<CharChange> changes;
  size_t skipped = 0;
  int32_t removed = 0;
  for (const char32_t c : characters()) {
    if (!keep(c)) {
      ++removed;
      continue;
    }
    if (changes.empty()) {
      skipped = static_cast<size_t>(removed);
    } else {
      changes.back().change = -removed;
    }
    changes.push_back({c, 0});
    removed = 0;
  }
  if (!changes.empty()) changes.back().change = -removed;
  transform(changes, skipped);
}

template <class Map>
void NormalizedText::map(const Map& map) {
  std::vector<CharChange> changes;
  for (const char32_t c : characters()) changes.push_back({map(c), 0});
  transform(changes);
}

}  // namespace finetune::tokenizer
