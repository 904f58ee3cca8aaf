// SPDX-License-Identifier: MIT
#include "tokenizer/pipeline/simple_words.h"

#include <algorithm>

#include "finetune/base/utf8.h"
#include "tokenizer/unicode/byte_level.h"

namespace finetune::tokenizer {
namespace {

constexpr char32_t kMetaspaceChar = 0x2581;

std::vector<std::string> parts_of(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer,
                                  const std::string& text) {
  NormalizedText normalized(text, 0, false);
  normalizer.apply(normalized);
  std::vector<std::string> parts;
  for (const NormalizedText& word : pre_tokenizer.cut(std::move(normalized))) {
    parts.push_back(word.text());
  }
  return parts;
}

bool has_space(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8::decode(text, at);
    if (char_class(c) == CharClass::kSpace || c == kMetaspaceChar) return true;
  }
  return false;
}

}  // namespace

SimpleWords::SimpleWords(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer) {
  const auto alone = parts_of(normalizer, pre_tokenizer, "a");
  if (alone.size() != 1 || !alone[0].ends_with('a')) return;
  prefix_ = alone[0].substr(0, alone[0].size() - 1);
  const std::string front = normalizer("a").substr(0, normalizer("a").size() - 1);
  for (char32_t c = '!'; c < kEnd; ++c) {
    std::string text;
    utf8::append(text, c);
    const std::string normal = normalizer(text);
    if (!normal.starts_with(front)) continue;
    const std::string made = normal.substr(front.size());
    Char& simple = chars_[c];
    if (made.empty() || made.size() > simple.bytes.size() || has_space(made)) continue;
    const auto parts = parts_of(normalizer, pre_tokenizer, "a" + text + "a");
    const bool within = parts == std::vector<std::string>{prefix_ + "a" + made + "a"};
    const bool apart = prefix_.empty() && parts == std::vector<std::string>{"a", made, "a"};
    if (!within && !apart) continue;
    std::copy(made.begin(), made.end(), simple.bytes.begin());
    simple.size = static_cast<uint8_t>(made.size());
    simple.apart = apart;
  }
}

bool SimpleWords::cut(std::string_view word, std::string& text, std::vector<size_t>& ends) const {
  text = prefix_;
  ends.clear();
  for (size_t at = 0; at < word.size();) {
    const char32_t c = utf8::decode(word, at);
    if (c >= kEnd || chars_[c].size == 0) return false;
    const Char& simple = chars_[c];
    if (simple.apart && !text.empty() && (ends.empty() || ends.back() != text.size())) {
      ends.push_back(text.size());
    }
    text.append(simple.bytes.data(), simple.size);
    if (simple.apart) ends.push_back(text.size());
  }
  if (ends.empty() || ends.back() != text.size()) ends.push_back(text.size());
  return true;
}

}  // namespace finetune::tokenizer
