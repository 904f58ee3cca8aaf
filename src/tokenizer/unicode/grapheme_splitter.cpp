// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/grapheme_splitter.h"

#include <array>
#include <vector>

#include "finetune/base/utf8.h"
#include "tokenizer/unicode/char_properties.h"

namespace finetune::tokenizer {
namespace {

enum GraphemeClass : uint8_t {
  kOther,
  kCr,
  kLf,
  kControl,
  kExtend,
  kZwj,
  kSpacingMark,
  kPrepend,
  kL,
  kV,
  kT,
  kLv,
  kLvt,
  kPictographic,
  kConsonant,
};
constexpr uint8_t kClassBits = 15;
// The character's Indic_Conjunct_Break, in addition to its class.
constexpr uint8_t kLinker = 16;
constexpr uint8_t kIndicExtend = 32;

struct GraphemeClassRange {
  char32_t first;
  char32_t last;
  uint8_t properties;
};

constexpr GraphemeClassRange kGraphemeClassRanges[] = {
#include "tokenizer/unicode/grapheme_classes.inc"
};
constexpr size_t kPage = 128;

// A table of pages; equal pages, which are most of them, are stored once.
class ClassTable {
 public:
  ClassTable() {
    std::vector<uint8_t> all(kEndOfUnicode, kOther);
    for (const GraphemeClassRange& range : kGraphemeClassRanges) {
      for (char32_t c = range.first; c <= range.last; ++c) all[c] = range.properties;
    }
    for (char32_t c = 0xAC00; c <= 0xD7A3; ++c) all[c] = (c - 0xAC00) % 28 == 0 ? kLv : kLvt;
    std::vector<std::array<uint8_t, kPage>> pages;
    for (size_t page = 0; page < pages_.size(); ++page) {
      std::array<uint8_t, kPage> content;
      for (size_t i = 0; i < kPage; ++i) content[i] = all[page * kPage + i];
      size_t known = pages.size();
      while (known > 0 && pages[known - 1] != content) --known;
      if (known == 0) {
        pages.push_back(content);
        classes_.insert(classes_.end(), content.begin(), content.end());
        known = pages.size();
      }
      pages_[page] = static_cast<uint16_t>(known - 1);
    }
  }

  [[nodiscard]] uint8_t operator[](char32_t c) const {
    return classes_[pages_[c / kPage] * kPage + c % kPage];
  }

 private:
  std::array<uint16_t, kEndOfUnicode / kPage> pages_{};
  std::vector<uint8_t> classes_;
};

uint8_t properties_of(char32_t c) {
  static const ClassTable kTable;
  return kTable[c];
}

uint8_t properties_at(std::string_view text, size_t& offset) {
  return properties_of(utf8::decode(text, offset));
}

bool is_control(uint8_t value) { return value >= kCr && value <= kControl; }

}  // namespace

bool GraphemeSplitter::joins(char32_t c) { return properties_of(c) != kOther; }

GraphemeSplitter::GraphemeSplitter(std::string_view text) : text_(text) {
  if (!text_.empty()) current_ = properties_at(text_, after_);
}

std::optional<std::string_view> GraphemeSplitter::next() {
  if (offset_ == text_.size()) return std::nullopt;
  const size_t start = offset_;
  for (bool continued = true; continued;) {
    const uint8_t before = current_;
    pass(before);
    offset_ = after_;
    if (offset_ == text_.size()) break;
    current_ = properties_at(text_, after_);
    continued = joined(before & kClassBits, current_ & kClassBits);
  }
  return text_.substr(start, offset_ - start);
}

// Updates the context that rules 9c and 11 of UAX 29 need.
void GraphemeSplitter::pass(uint8_t properties) {
  const uint8_t value = properties & kClassBits;
  if (value != kExtend && value != kZwj) pictograph_ = value == kPictographic;
  if ((properties & (kLinker | kIndicExtend)) == 0) {
    consonant_ = value == kConsonant;
    linker_ = false;
  }
  linker_ |= (properties & kLinker) != 0;
}

bool GraphemeSplitter::joined(uint8_t before, uint8_t after) const {
  if (before == kCr && after == kLf) return true;
  if (is_control(before) || is_control(after)) return false;
  if (before == kL && (after == kL || after == kV || after == kLv || after == kLvt)) return true;
  if ((before == kLv || before == kV) && (after == kV || after == kT)) return true;
  if ((before == kLvt || before == kT) && after == kT) return true;
  if (after == kExtend || after == kZwj || after == kSpacingMark || before == kPrepend) return true;
  if (after == kConsonant) return consonant_ && linker_;
  return before == kZwj && after == kPictographic && pictograph_;
}

}  // namespace finetune::tokenizer
