// SPDX-License-Identifier: MIT
#include "tokenizer/pattern.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/char_properties.h"
#include "tokenizer/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxPatternBytes = 4096;
// Enough for patterns that look at a character a few times; those that do not would take hours.
constexpr uint64_t kStepsPerByte = 1000;
constexpr uint64_t kLeastSteps = 1'000'000;

bool is_pattern_word(char32_t c) {
  if (c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE)) return true;
  return c != 0x200C && c != 0x200D && has_property(c, kWordChar);
}

}  // namespace

// Reads a regular expression; everything that it does not know is refused.
class PatternReader {
 public:
  PatternReader(const std::string& pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::vector<Pattern::Alternative> read() {
    std::vector<Pattern::Alternative> alternatives(1);
    while (at_ < pattern_.size()) {
      if (peek() == '|') {
        ++at_;
        alternatives.emplace_back();
      } else {
        alternatives.back().push_back(read_item());
      }
    }
    for (const auto& items : alternatives) {
      const bool takes = std::any_of(items.begin(), items.end(), [](const Pattern::Item& item) {
        return item.min > 0 && !item.not_ahead;
      });
      if (!takes) refuse();  // it could match nothing at all
    }
    return alternatives;
  }

 private:
  [[noreturn]] void refuse() const {
    throw unsupported(where_, "the regular expression '" + pattern_.substr(0, 200) + "'");
  }
  [[nodiscard]] char peek() const { return at_ < pattern_.size() ? pattern_[at_] : '\0'; }
  bool take(std::string_view text) {
    if (pattern_.compare(at_, text.size(), text) != 0) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    if (at_ >= pattern_.size()) refuse();
    return utf8::decode(pattern_, at_);
  }

  Pattern::Item read_item() {
    Pattern::Item item;
    if (take("(?!")) {
      item = read_set_or_atom();
      item.not_ahead = true;
      if (!take(")")) refuse();
      return item;
    }
    item = read_set_or_atom();
    read_quantifier(item);
    return item;
  }

  Pattern::Item read_set_or_atom() {
    Pattern::Item item;
    if (!take("[")) {
      item.atoms = {read_atom(false)};
      return item;
    }
    item.negated = take("^");
    while (peek() != ']') {
      Pattern::Atom atom = read_atom(true);
      const bool range = peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']';
      if (range) {
        ++at_;
        const Pattern::Atom end = read_atom(true);
        if (atom.kind != Pattern::Class::kLiteral || end.kind != Pattern::Class::kLiteral ||
            end.last < atom.first) {
          refuse();
        }
        atom.last = end.last;
      }
      item.atoms.push_back(atom);
    }
    ++at_;
    if (item.atoms.empty()) refuse();
    return item;
  }

  Pattern::Atom read_atom(bool in_set) {
    const char32_t c = take_char();
    if (c == '\\') return read_escape();
    if (!in_set && c == '.') return {.kind = Pattern::Class::kAnyButNewline};
    const std::string_view reserved = in_set ? "[]&^" : "()[]{}*+?^$|";
    if (c < 128 && reserved.find(static_cast<char>(c)) != std::string_view::npos) refuse();
    return {.first = c, .last = c};
  }

  Pattern::Atom read_escape() {
    using Class = Pattern::Class;
    const char32_t c = take_char();
    const auto of = [](Class kind, bool negated) {
      return Pattern::Atom{.kind = kind, .negated = negated};
    };
    switch (c) {
      case 's':
      case 'S':
        return of(Class::kSpace, c == 'S');
      case 'w':
      case 'W':
        return of(Class::kWord, c == 'W');
      case 'p':
      case 'P':
        if (take("{L}")) return of(Class::kLetter, c == 'P');
        if (take("{N}")) return of(Class::kNumber, c == 'P');
        refuse();
      case 'n':
        return {.first = '\n', .last = '\n'};
      case 'r':
        return {.first = '\r', .last = '\r'};
      case 't':
        return {.first = '\t', .last = '\t'};
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || c >= 128) refuse();
    return {.first = c, .last = c};
  }

  void read_quantifier(Pattern::Item& item) {
    if (take("*")) {
      item.min = 0;
      item.max = kUnbounded;
    } else if (take("+")) {
      item.max = kUnbounded;
    } else if (take("?")) {
      item.min = 0;
    } else if (take("{")) {
      item.min = read_count();
      item.max = item.min;
      if (take(",")) item.max = peek() == '}' ? kUnbounded : read_count();
      if (!take("}") || item.max < item.min) refuse();
      if (peek() == '+') refuse();  // the package does not take it for possessive here
    } else {
      return;
    }
    if (take("+")) item.possessive = true;
    if (peek() == '?' || peek() == '*' || peek() == '+' || peek() == '{') refuse();
  }

  uint32_t read_count() {
    uint32_t count = 0;
    size_t digits = 0;
    for (; peek() >= '0' && peek() <= '9' && digits < 4; ++at_, ++digits) {
      count = 10 * count + static_cast<uint32_t>(peek() - '0');
    }
    if (digits == 0) refuse();
    return count;
  }

  const std::string& pattern_;
  const std::string& where_;
  size_t at_ = 0;
};

Pattern::Pattern(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_object() || json.size() != 1) {
    throw Error(ErrorKind::kData,
                where + R"(: a pattern must be {"String": "..."} or {"Regex": "..."})");
  }
  if (const auto regex = optional_string(json, "Regex", where)) {
    if (regex->size() > kMaxPatternBytes) throw unsupported(where, "so long a regular expression");
    alternatives_ = PatternReader(*regex, where).read();
    for (const Alternative& items : alternatives_) add_starts(items);
  } else {
    literal_ = string_field(json, "String", where);
    if (literal_.empty()) throw unsupported(where, "a pattern that is an empty string");
  }
}

void Pattern::add_starts(const Alternative& items) {
  const bool starts = !items.empty() && items[0].min > 0 && items[0].max > 0 && !items[0].not_ahead;
  const auto is_literal = [](const Atom& atom) {
    return atom.kind == Class::kLiteral && !atom.negated;
  };
  const bool literal = starts && !items[0].negated &&
                       std::all_of(items[0].atoms.begin(), items[0].atoms.end(), is_literal);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!starts || (byte < 128 ? accepts(items[0], byte) : !literal)) {
      starts_.add(static_cast<uint8_t>(byte));
    }
  }
  if (!literal) return;
  for (const Atom& atom : items[0].atoms) {
    if (atom.last < 128) continue;
    const auto lead = [](char32_t c) {
      std::string text;
      utf8::append(text, c);
      return static_cast<uint8_t>(text[0]);
    };
    const uint8_t last = lead(atom.last);
    for (uint32_t byte = lead(std::max<char32_t>(atom.first, 128)); byte <= last; ++byte) {
      starts_.add(static_cast<uint8_t>(byte));
    }
  }
}

bool Pattern::accepts(const Atom& atom, char32_t c) {
  bool in = false;
  switch (atom.kind) {
    case Class::kLiteral:
      in = c >= atom.first && c <= atom.last;
      break;
    case Class::kSpace:
      in = char_class(c) == CharClass::kSpace;
      break;
    case Class::kLetter:
      in = char_class(c) == CharClass::kLetter;
      break;
    case Class::kNumber:
      in = char_class(c) == CharClass::kNumber;
      break;
    case Class::kWord:
      in = is_pattern_word(c);
      break;
    case Class::kAnyButNewline:
      in = c != '\n';
      break;
  }
  return in != atom.negated;
}

bool Pattern::accepts(const Item& item, char32_t c) {
  const bool in = std::any_of(item.atoms.begin(), item.atoms.end(),
                              [&](const Atom& atom) { return accepts(atom, c); });
  return in != item.negated;
}

size_t Pattern::match(const Alternative& items, size_t index, std::string_view text, size_t at,
                      uint64_t& steps) const {
  if (index == items.size()) return at;
  if (steps-- == 0) {
    throw Error(ErrorKind::kData,
                "a regular expression of the tokenizer takes too long on a text; shorten the text "
                "or use another tokenizer");
  }
  const Item& item = items[index];
  if (item.not_ahead) {
    size_t after = at;
    if (at < text.size() && accepts(item, utf8::decode(text, after))) return std::string_view::npos;
    return match(items, index + 1, text, at, steps);
  }
  size_t end = at;
  uint32_t count = 0;
  while (count < item.max && end < text.size()) {
    size_t after = end;
    if (!accepts(item, utf8::decode(text, after))) break;
    end = after;
    ++count;
    if (steps > 0) --steps;
  }
  while (count >= item.min) {
    const size_t found = match(items, index + 1, text, end, steps);
    if (found != std::string_view::npos || count == 0 || item.possessive) return found;
    --count;
    do {
      --end;
    } while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  }
  return std::string_view::npos;
}

std::vector<Pattern::Match> Pattern::find_replaced(std::string_view text,
                                                   std::string_view content) const {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  std::vector<Match> matches = find_all(text);
  if (!matches.empty() && text.size() + content.size() * matches.size() > kMaxBytes) {
    throw Error(ErrorKind::kData,
                "a Replace of the tokenizer makes a text longer than 256 MiB; use another "
                "tokenizer");
  }
  return matches;
}

std::vector<Pattern::Match> Pattern::find_all(std::string_view text) const {
  std::vector<Match> matches;
  if (alternatives_.empty()) {
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;) {
      matches.push_back({at, at + literal_.size()});
      at += literal_.size();
    }
    return matches;
  }
  uint64_t steps = kLeastSteps + kStepsPerByte * text.size();
  for (size_t at = 0; (at = starts_.find(text, at)) < text.size();) {
    size_t end = std::string_view::npos;
    for (const Alternative& items : alternatives_) {
      end = match(items, 0, text, at, steps);
      if (end != std::string_view::npos) break;
    }
    if (end == std::string_view::npos) {
      (void)utf8::decode(text, at);
    } else {
      matches.push_back({at, end});
      at = end;
    }
  }
  return matches;
}

}  // namespace finetune::tokenizer
