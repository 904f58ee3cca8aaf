// SPDX-License-Identifier: MIT
#include "data/pretraining/sentences.h"

#include <algorithm>
#include <array>

#include "data/readers/white_space.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

constexpr std::array<std::string_view, 14> kClosing = {"」", "』", "）", "】", "〉", "》", "］",
                                                       "”",  "’",  ")",  "]",  "\"", "'",  "»"};

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool begins_with_space(std::string_view text) {
  return without_front_space(text).size() < text.size();
}

// Returns the bytes of the longest item of `list` at the start of `text`; 0 if there is none.
template <class List>
size_t prefix(std::string_view text, const List& list) {
  size_t longest = 0;
  for (const std::string_view item : list) {
    if (item.size() > longest && text.starts_with(item)) longest = item.size();
  }
  return longest;
}

}  // namespace

std::vector<std::string_view> split_sentences(std::string_view line,
                                              const std::vector<std::string>& delimiters) {
  std::vector<std::string_view> sentences;
  const auto add = [&](std::string_view sentence) {
    if (!is_white_space(sentence)) sentences.push_back(sentence);
  };
  size_t begin = 0;
  for (size_t at = 0; at < line.size();) {
    const size_t size = prefix(line.substr(at), delimiters);
    if (size == 0) {
      static_cast<void>(utf8::decode(line, at));
      continue;
    }
    bool ends = !is_ascii(line.substr(at, size));
    at += size;
    // For "?!" and "..." the sentence ends after the last of them.
    while (const size_t more = prefix(line.substr(at), delimiters)) {
      ends = ends || !is_ascii(line.substr(at, more));
      at += more;
    }
    while (const size_t closing = prefix(line.substr(at), kClosing)) at += closing;
    if (!ends && at < line.size() && !begins_with_space(line.substr(at))) continue;
    add(line.substr(begin, at - begin));
    begin = at;
  }
  add(line.substr(begin));
  return sentences;
}

}  // namespace finetune
