// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// A character of a changed text and where it comes from, as the tokenizers package counts:
//   0   it replaces the next character
//   1   it is new, at the position of the one before it
//  -N   it replaces the next character, and the N after that one are removed
struct CharChange {
  char32_t c;
  int32_t change;
};

// A text as normalizers and pre-tokenizers transform it, with the origin of each byte in the input:
// NormalizedString of the tokenizers package. Without origins (if no ranges are needed) only the
// text is kept.
class NormalizedText {
 public:
  // Bytes [begin, end) of the original text.
  struct Origin {
    uint32_t begin = 0;
    uint32_t end = 0;
    bool operator==(const Origin&) const = default;
  };

  NormalizedText() = default;
  // `text` starts at offset `begin` of the original text. Requires: valid UTF-8, < 4 GiB.
  NormalizedText(std::string_view text, uint32_t begin, bool with_origins);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool empty() const { return text_.empty(); }
  [[nodiscard]] bool has_origins() const { return with_origins_; }
  // Offset of the text when it was last sliced; 0 without origins.
  [[nodiscard]] uint32_t begin() const { return begin_; }
  // Returns the origin of the bytes [begin, end). Requires: has_origins().
  [[nodiscard]] Origin origin(size_t begin, size_t end) const;

  // Replaces the text. Requires: !has_origins().
  void assign(std::string text);

  [[nodiscard]] NormalizedText slice(size_t begin, size_t end) const;

  // Replaces the text by `changes`; the first `skipped` characters are removed.
  void transform(const std::vector<CharChange>& changes, size_t skipped = 0);
  // Keeps only the characters for which keep(char32_t) is true.
  template <class Keep>
  void filter(const Keep& keep);
  // Replaces each character c by map(c).
  template <class Map>
  void map(const Map& map);
  // Replaces each of `matches`, which are in order and do not overlap, by `content`.
  struct Match {
    size_t begin;
    size_t end;
  };
  void replace(const std::vector<Match>& matches, std::string_view content);
  void prepend(std::string_view content);  // does nothing for an empty text
  void strip(bool left, bool right);       // white space
  // Replaces each byte by its character in byte-level vocabularies.
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
