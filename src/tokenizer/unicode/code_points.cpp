// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/code_points.h"

#include <algorithm>

#include "tokenizer/unicode/char_properties.h"

namespace finetune::tokenizer {
namespace {

constexpr char32_t kLastCodePoint = kEndOfUnicode - 1;

std::string spelt(const std::vector<CodePointRange>& ranges) {
  std::string text;
  for (const auto& [first, last] : ranges) {
    text += spell_code_point(first);
    if (last > first) text.append("-").append(spell_code_point(last));
  }
  return text;
}

}  // namespace

std::string spell_code_point(char32_t code_point) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (uint32_t rest = code_point; rest > 0 || digits.empty(); rest >>= 4) {
    digits.insert(digits.begin(), kDigits[rest & 15]);
  }
  return "\\x{" + digits + "}";
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

void CodePointSet::add(CategorySet categories) {
  const std::vector<CodePointRange> ranges = ranges_of(categories);
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
}

std::vector<CodePointRange> CodePointSet::sorted() const {
  std::vector<CodePointRange> parts;
  for (const auto& [first, last] : ranges_) {  // PCRE2 rejects surrogates, and no text has them
    if (first < 0xD800) parts.push_back({first, std::min<char32_t>(last, 0xD7FF)});
    if (last > 0xDFFF) parts.push_back({std::max<char32_t>(first, 0xE000), last});
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CodePointRange> joined;
  for (const CodePointRange& part : parts) {
    if (!joined.empty() && part.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, part.last);
    } else {
      joined.push_back(part);
    }
  }
  return joined;
}

CodePointSet CodePointSet::complement() const {
  CodePointSet result;
  char32_t begin = 0;
  for (const auto& [first, last] : sorted()) {
    if (begin < first) result.add(begin, first - 1);
    begin = last + 1;
  }
  if (begin <= kLastCodePoint) result.add(begin, kLastCodePoint);
  return result;
}

std::string CodePointSet::to_class() const {
  const std::vector<CodePointRange> ranges = sorted();
  if (ranges.empty()) return "(?!)";
  const std::string text = spelt(ranges);
  const std::string others = spelt(complement().sorted());
  if (!others.empty() && others.size() < text.size()) return "[^" + others + "]";
  return "[" + text + "]";
}

CodePointSet CodePointSet::white_space() {
  CodePointSet set;
  set.add(0x9, 0xD);
  set.add(0x85, 0x85);
  set.add(*find_categories("Z"));
  return set;
}

CodePointSet CodePointSet::word() {
  CodePointSet set;
  for (const char* name : {"L", "M", "Nd", "Nl", "Pc"}) set.add(*find_categories(name));
  set.add(0xB2, 0xB3);
  set.add(0xB9, 0xB9);
  set.add(0xBC, 0xBE);
  set.add(0x24B6, 0x24E9);
  set.add(0x1F130, 0x1F149);
  set.add(0x1F150, 0x1F169);
  set.add(0x1F170, 0x1F189);
  return set;
}

}  // namespace finetune::tokenizer
