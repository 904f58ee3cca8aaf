// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/normalized_text.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "tokenizer/unicode/byte_level.h"

namespace finetune::tokenizer {
namespace {

size_t length_at(std::string_view text, size_t offset) {
  const auto byte = static_cast<uint8_t>(text[offset]);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

NormalizedText::NormalizedText(std::string_view text, uint32_t begin, bool with_origins)
    : text_(text), begin_(with_origins ? begin : 0), with_origins_(with_origins) {
  if (!with_origins) return;
  origins_.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const size_t size = std::min(length_at(text, offset), text.size() - offset);
    const auto start = static_cast<uint32_t>(begin + offset);
    origins_.insert(origins_.end(), size, {start, start + static_cast<uint32_t>(size)});
    offset += size;
  }
}

NormalizedText::Origin NormalizedText::origin(size_t begin, size_t end) const {
  FT_CHECK(with_origins_ && end <= origins_.size(), "a text's origins are not kept");
  // The package gives an empty token its position in the normalised word.
  if (begin >= end) {
    const auto at = static_cast<uint32_t>(begin_ + begin);
    return {at, at};
  }
  return {origins_[begin].begin, origins_[end - 1].end};
}

void NormalizedText::assign(std::string text) {
  FT_CHECK(!with_origins_, "where the characters come from is unknown");
  text_ = std::move(text);
}

NormalizedText NormalizedText::slice(size_t begin, size_t end) const {
  NormalizedText part;
  part.text_ = text_.substr(begin, end - begin);
  part.with_origins_ = with_origins_;
  if (!with_origins_) return part;
  part.origins_.assign(origins_.begin() + static_cast<std::ptrdiff_t>(begin),
                       origins_.begin() + static_cast<std::ptrdiff_t>(end));
  part.begin_ = part.origins_.empty() ? begin_ : part.origins_.front().begin;
  return part;
}

std::u32string NormalizedText::characters() const {
  std::u32string characters;
  characters.reserve(text_.size());
  for (size_t offset = 0; offset < text_.size();) characters += utf8::decode(text_, offset);
  return characters;
}

void NormalizedText::transform(const std::vector<CharChange>& changes, size_t skipped) {
  std::string text;
  text.reserve(text_.size());
  std::vector<Origin> origins;
  if (with_origins_) origins.reserve(text_.size());
  size_t offset = 0;
  const auto pass = [&](size_t count) {
    for (; count > 0 && offset < text_.size(); --count) offset += length_at(text_, offset);
  };
  if (with_origins_) pass(skipped);
  for (const auto& [c, change] : changes) {
    const size_t before = text.size();
    utf8::append(text, c);
    if (!with_origins_) continue;
    Origin origin;
    if (change > 0) {
      if (offset > 0) origin = origins_[offset - 1];
    } else {
      FT_CHECK(offset < origins_.size(), "more characters are replaced than there are");
      origin = origins_[offset];
      pass(1 + static_cast<size_t>(-change));
    }
    origins.insert(origins.end(), text.size() - before, origin);
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

void NormalizedText::replace(const std::vector<Match>& matches, std::string_view content) {
  if (matches.empty()) return;
  std::string text;
  std::vector<Origin> origins;
  size_t done = 0;
  const auto copy = [&](size_t end) {
    text.append(text_, done, end - done);
    if (with_origins_) {
      origins.insert(origins.end(), origins_.begin() + static_cast<std::ptrdiff_t>(done),
                     origins_.begin() + static_cast<std::ptrdiff_t>(end));
    }
  };
  for (const Match& match : matches) {
    copy(match.begin);
    text.append(content);
    // Inserted text has the origin of the last character that it replaces.
    if (with_origins_) {
      origins.insert(origins.end(), content.size(),
                     match.end > 0 ? origins_[match.end - 1] : Origin{});
    }
    done = match.end;
  }
  copy(text_.size());
  text_ = std::move(text);
  origins_ = std::move(origins);
}

void NormalizedText::prepend(std::string_view content) {
  if (text_.empty() || content.empty()) return;
  if (with_origins_) {
    const Origin first = origins_.front();
    origins_.insert(origins_.begin(), content.size(), first);
  }
  text_.insert(0, content);
}

void NormalizedText::strip(bool left, bool right) {
  const auto is_space = [&](size_t offset) {
    return char_class(utf8::decode(text_, offset)) == CharClass::kSpace;
  };
  size_t begin = 0;
  while (begin < text_.size() && is_space(begin)) begin += length_at(text_, begin);
  if (begin == text_.size()) {
    if (left || right) *this = NormalizedText({}, begin_, with_origins_);
    return;
  }
  size_t end = text_.size();
  for (size_t last = end; last > begin; end = last) {
    do {
      --last;
    } while ((static_cast<uint8_t>(text_[last]) & 0xC0) == 0x80);
    if (!is_space(last)) break;
  }
  if (!left) begin = 0;
  if (!right) end = text_.size();
  text_.erase(end);
  text_.erase(0, begin);
  if (!with_origins_) return;
  origins_.erase(origins_.begin() + static_cast<std::ptrdiff_t>(end), origins_.end());
  origins_.erase(origins_.begin(), origins_.begin() + static_cast<std::ptrdiff_t>(begin));
}

void NormalizedText::to_byte_level() {
  std::string text;
  text.reserve(text_.size() * 2);
  std::vector<Origin> origins;
  if (with_origins_) origins.reserve(text_.size() * 2);
  for (size_t i = 0; i < text_.size(); ++i) {
    const size_t before = text.size();
    utf8::append(text, byte_chars()[static_cast<uint8_t>(text_[i])]);
    if (with_origins_) origins.insert(origins.end(), text.size() - before, origins_[i]);
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

}  // namespace finetune::tokenizer
