// SPDX-License-Identifier: MIT
#include "tokenizer/regex/text_cutter.h"

#include <array>

#include "finetune/tokenizer/known_patterns.h"
#include "tokenizer/unicode/char_properties.h"
#include "tokenizer/unicode/text_scanner.h"

namespace finetune::tokenizer {
namespace {

constexpr uint8_t kLetterOrMark = kLetterTrait | kMarkTrait;
constexpr uint8_t kSpaceLetterNumber = kSpaceTrait | kLetterTrait | kNumberTrait;

// A cutter based on end(scanner, at), which returns the end of the match at `at`, or `at` if there
// is none. Consecutive characters without a match form one piece.
template <class Matcher>
class MatchCutter final : public TextCutter {
 public:
  explicit MatchCutter(Matcher matcher = {}) : matcher_(matcher), traits_(char_traits()) {}

  void cut(std::string_view text, std::vector<uint32_t>& ends) const override {
    const TextScanner scanner(text, traits_);
    bool gap = false;
    for (size_t at = 0; at < text.size();) {
      const size_t end = matcher_.end(scanner, at);
      if (end == at) {
        at = scanner.get(at).end;
        gap = true;
        continue;
      }
      if (gap) ends.push_back(static_cast<uint32_t>(at));
      gap = false;
      ends.push_back(static_cast<uint32_t>(end));
      at = end;
    }
    if (gap) ends.push_back(static_cast<uint32_t>(text.size()));
  }

 private:
  Matcher matcher_;
  const uint8_t* traits_;
};

// Returns the end of at most `count` numbers. Requires: a number at `at`.
size_t end_of_numbers(const TextScanner& text, size_t at, int count) {
  for (; count > 0 && text.is(at, kNumberTrait); --count) at = text.get(at).end;
  return at;
}

//  ?[^\s\p{L}\p{N}]+, also without the characters of `no_signs`; returns `at` if there is no match.
size_t end_of_signs(const TextScanner& text, size_t at, uint8_t no_signs) {
  size_t first = at;
  if (text.get(at).byte == ' ') first = at + 1;
  const size_t end = text.end_of_others(first, no_signs);
  return end == first ? at : end;
}

struct Gpt2Matcher {
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    if (const size_t end = text.end_of_contraction(at, false); end > at) return end;
    TextScanner::Char c = text.get(at);
    if (c.byte == ' ' && text.has(c.end)) {
      const TextScanner::Char next = text.get(c.end);
      if ((next.traits & kSpaceTrait) == 0) c = next;
    }
    if ((c.traits & kLetterTrait) != 0) return text.end_of(c.end, kLetterTrait);
    if ((c.traits & kNumberTrait) != 0) return text.end_of(c.end, kNumberTrait);
    if ((c.traits & kSpaceTrait) != 0) return text.end_of_space(at, false);
    return text.end_of_others(c.end, kSpaceLetterNumber);
  }
};

// Llama 3, cl100k and Qwen:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,NUMBERS}| ?[^\s\p{N}WORD]+[\r\n]*|
//   \s*[\r\n]+|\s+(?!\S)|\s+
template <uint8_t kWord, int kNumbers>
struct Cl100kMatcher {
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    if (const size_t end = text.end_of_contraction(at, true); end > at) return end;
    const TextScanner::Char c = text.get(at);
    if ((c.traits & kWord) != 0) return text.end_of(c.end, kWord);
    if ((c.traits & kNumberTrait) != 0) return end_of_numbers(text, at, kNumbers);
    if (!TextScanner::is_newline(static_cast<char>(c.byte)) && text.is(c.end, kWord)) {
      return text.end_of(c.end, kWord);
    }
    constexpr uint8_t kNoSigns = kSpaceTrait | kNumberTrait | kWord;
    if (const size_t end = end_of_signs(text, at, kNoSigns); end > at) {
      return text.end_of_newlines(end, false);
    }
    return text.end_of_space(at, true);
  }
};

// o200k and, without contractions and with single numbers, tekken; U and L stand for
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
//   [^\r\n\p{L}\p{N}]?U*L+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//   [^\r\n\p{L}\p{N}]?U+L*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//   \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <bool kContractions, int kNumbers>
struct O200kMatcher {
  // U*L+ at `at`; returns `at` if it does not match. Sets `capitals` to the end of U*.
  [[nodiscard]] static size_t end_of_word(const TextScanner& text, size_t at, size_t& capitals) {
    if (const size_t end = text.end_of_small_letters(at); end > at) {
      return text.end_of(end, kLowerTrait);
    }
    size_t last = at;  // after the last character of U* that is in L too
    size_t end = at;
    while (text.has(end)) {
      const TextScanner::Char c = text.get(end);
      if ((c.traits & kUpperTrait) == 0) break;
      end = c.end;
      if ((c.traits & kLowerTrait) != 0) last = end;
    }
    capitals = end;
    const size_t after = text.end_of(text.end_of_small_letters(end), kLowerTrait);
    return after > end ? after : last;
  }
  [[nodiscard]] static size_t with_contraction(const TextScanner& text, size_t end) {
    return kContractions ? text.end_of_contraction(end, true) : end;
  }

  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    const TextScanner::Char c = text.get(at);
    constexpr uint8_t kLetterOrNumber = kLetterTrait | kNumberTrait;
    const bool prefix =
        (c.traits & kLetterOrNumber) == 0 && !TextScanner::is_newline(static_cast<char>(c.byte));
    // The optional first character is tried first; U+ is tried only if U*L+ fails with and without
    // it.
    size_t capitals_after = c.end;
    if (prefix) {
      const size_t end = end_of_word(text, c.end, capitals_after);
      if (end > c.end) return with_contraction(text, end);
    }
    size_t capitals = at;
    if ((c.traits & kLetterOrMark) != 0) {
      const size_t end = end_of_word(text, at, capitals);
      if (end > at) return with_contraction(text, end);
    }
    if (capitals_after > c.end) return with_contraction(text, capitals_after);
    if (capitals > at) return with_contraction(text, capitals);
    if ((c.traits & kNumberTrait) != 0) return end_of_numbers(text, at, kNumbers);
    if (const size_t end = end_of_signs(text, at, kSpaceLetterNumber); end > at) {
      return text.end_of_newlines(end, true);
    }
    return text.end_of_space(at, true);
  }
};

struct DeepSeekNumbers {  // \p{N}{1,3}
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    return end_of_numbers(text, at, 3);
  }
};

struct DeepSeekIdeographs {  // [一-龥぀-ゟ゠-ヿ]+
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    for (size_t after = at; text.has(at); at = after) {
      const char32_t c = text.code_point(at, after);
      if (!((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF))) break;
    }
    return at;
  }
};

//   [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
//    ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
struct DeepSeekWords {
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    const TextScanner::Char c = text.get(at);
    if (c.byte < 128 && (c.traits & kPunctuationTrait) != 0) {
      if (const size_t end = text.end_of_ascii_letters(c.end); end > c.end) return end;
    }
    if ((c.traits & kLetterOrMark) != 0) return text.end_of(c.end, kLetterOrMark);
    if ((c.traits & kPunctuationTrait) == 0 &&
        !TextScanner::is_newline(static_cast<char>(c.byte)) && text.is(c.end, kLetterOrMark)) {
      return text.end_of(c.end, kLetterOrMark);
    }
    const size_t first = c.byte == ' ' ? c.end : at;
    if (const size_t end = text.end_of(first, kPunctuationTrait); end > first) {
      return text.end_of_newlines(end, false);
    }
    return (c.traits & kSpaceTrait) != 0 ? text.end_of_space(at, true) : at;
  }
};

struct EachDigit {
  [[nodiscard]] size_t end(const TextScanner& text, size_t at) const {
    size_t after = at;
    return has_property(text.code_point(at, after), kNumericChar) ? after : at;
  }
};

template <class Matcher>
std::shared_ptr<const TextCutter> make_cutter() {
  return std::make_shared<MatchCutter<Matcher>>();
}

struct KnownRegex {
  std::string_view text;
  std::shared_ptr<const TextCutter> (*make)();
};

constexpr std::array<KnownRegex, 9> kKnownRegexes = {{
    {kGpt2Pattern, &make_cutter<Gpt2Matcher>},
    {kLlama3Pattern, &make_cutter<Cl100kMatcher<kLetterTrait, 3>>},
    {kQwen2Pattern, &make_cutter<Cl100kMatcher<kLetterTrait, 1>>},
    {kQwen35Pattern, &make_cutter<Cl100kMatcher<kLetterOrMark, 1>>},
    {kO200kPattern, &make_cutter<O200kMatcher<true, 3>>},
    {kTekkenPattern, &make_cutter<O200kMatcher<false, 1>>},
    {R"(\p{N}{1,3})", &make_cutter<DeepSeekNumbers>},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
     &make_cutter<DeepSeekIdeographs>},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
     R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     &make_cutter<DeepSeekWords>},
}};

}  // namespace

std::shared_ptr<const TextCutter> find_cutter(std::string_view regex) {
  for (const KnownRegex& known : kKnownRegexes) {
    if (known.text == regex) return known.make();
  }
  return nullptr;
}

const TextCutter& gpt2_cutter() {
  static const MatchCutter<Gpt2Matcher> kCutter;
  return kCutter;
}

std::shared_ptr<const TextCutter> make_digit_cutter() { return make_cutter<EachDigit>(); }

}  // namespace finetune::tokenizer
