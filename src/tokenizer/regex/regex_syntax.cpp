// SPDX-License-Identifier: MIT
#include "tokenizer/regex/regex_syntax.h"

#include <array>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "tokenizer/unicode/code_points.h"
#include "tokenizer/unicode/json_fields.h"

namespace finetune::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr int kMaxDepth = 32;
constexpr int kMaxRepeats = 1000;
constexpr const char* kCallout = "(?C)";

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_alphanumeric(char32_t c) { return is_ascii_letter(c) || (c >= '0' && c <= '9'); }
char small_letter(char32_t c) { return static_cast<char>(c | 0x20); }

// Whether the two letters also match as one character without case in Oniguruma.
bool folds_to_one(char first, char second) {
  constexpr std::array<std::string_view, 5> kPairs = {"ss", "ff", "fi", "fl", "st"};
  const std::array<char, 2> pair = {first, second};
  for (const std::string_view known : kPairs) {
    if (known == std::string_view(pair.data(), 2)) return true;
  }
  return false;
}

class RegexTranslator {
 public:
  RegexTranslator(std::string_view regex, const std::string& where)
      : regex_(regex), where_(where) {}

  std::string translate() {
    const Part whole = read_alternatives(0);
    if (at_ < regex_.size()) refuse();
    if (whole.nullable) {
      throw unsupported(where_,
                        "the regular expression '" + shown() + "', which can match nothing at all");
    }
    return whole.text;
  }

 private:
  struct Part {
    std::string text;
    bool nullable = false;  // can match the empty string
    bool repeatable = true;
  };

  [[nodiscard]] std::string shown() const { return shorten_regex(regex_); }
  [[noreturn]] void refuse() const {
    throw unsupported(where_,
                      format_text("the regular expression '{}' (at byte {})", shown(), at_));
  }
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < regex_.size() ? regex_[at_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (!regex_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    if (at_ >= regex_.size()) refuse();
    return utf8::decode(regex_, at_);
  }

  Part read_alternatives(int depth) {
    if (depth > kMaxDepth) refuse();
    Part all;
    do {
      if (!all.text.empty() || all.nullable) all.text += '|';
      Part one = read_sequence(depth);
      all.text += one.text;
      all.nullable = all.nullable || one.nullable;
    } while (take("|"));
    return all;
  }

  Part read_sequence(int depth) {
    Part all{.text = "", .nullable = true};
    last_letter_.reset();
    while (at_ < regex_.size() && peek() != '|' && peek() != ')') {
      Part item = read_item(depth);
      read_quantifier(item);
      all.text += item.text;
      all.nullable = all.nullable && item.nullable;
    }
    last_letter_.reset();
    return all;
  }

  Part read_item(int depth) {
    if (peek() == '(') return read_group(depth);
    if (peek() == '[') {
      last_letter_.reset();
      return {.text = read_class().to_class()};
    }
    const char32_t c = take_char();
    if (c == '\\') return read_escape();
    if (c == '.') return {.text = "[^\\n]"};
    if (c == '^' || c == '$') {
      return {.text = std::string(1, static_cast<char>(c)), .nullable = true, .repeatable = false};
    }
    if (c < 128 &&
        std::string_view(")]{}*+?").find(static_cast<char>(c)) != std::string_view::npos) {
      --at_;
      refuse();
    }
    return literal(c);
  }

  Part literal(char32_t c) {
    if (!any_case_) {
      std::string text;
      if (c < 128 && !is_alphanumeric(c)) {
        return {.text = spell_code_point(c)};
      }
      utf8::append(text, c);
      return {.text = text};
    }
    if (c >= 128) refuse();  // its case variants depend on tables
    if (!is_ascii_letter(c)) {
      last_letter_.reset();
      return {.text = spell_code_point(c)};
    }
    const char letter = small_letter(c);
    if (last_letter_ && folds_to_one(*last_letter_, letter)) refuse();
    last_letter_ = letter;
    CodePointSet set;
    add_any_case(letter, set);
    return {.text = set.to_class()};
  }

  static void add_any_case(char letter, CodePointSet& set) {
    const auto small = static_cast<char32_t>(letter);
    set.add(small, small);
    set.add(small - 32, small - 32);
    if (letter == 's') set.add(0x17F, 0x17F);
    if (letter == 'k') set.add(0x212A, 0x212A);
  }

  Part read_group(int depth) {
    struct Kind {
      std::string_view begin;
      bool takes;  // consumes characters
    };
    constexpr std::array<Kind, 6> kKinds = {{{"(?:", true},
                                             {"(?>", true},
                                             {"(?=", false},
                                             {"(?!", false},
                                             {"(?<=", false},
                                             {"(?<!", false}}};
    const bool outer = any_case_;
    if (take("(?i:")) {
      any_case_ = true;
      Part part = read_rest_of_group("(?:", depth, true);
      any_case_ = outer;
      return part;
    }
    for (const Kind& kind : kKinds) {
      if (take(kind.begin)) return read_rest_of_group(kind.begin, depth, kind.takes);
    }
    if (peek(1) == '?') refuse();
    ++at_;
    return read_rest_of_group("(?:", depth, true);
  }

  Part read_rest_of_group(std::string_view begin, int depth, bool takes) {
    Part inner = read_alternatives(depth + 1);
    if (!take(")")) refuse();
    last_letter_.reset();
    const char* callout = begin.starts_with("(?<") ? "" : kCallout;
    // The callout precedes the group of alternatives.
    std::string text = std::string(begin) + callout;
    text += *callout != '\0' ? "(?:" + inner.text + ")" : inner.text;
    return {.text = text + ")", .nullable = inner.nullable || !takes, .repeatable = takes};
  }

  Part read_escape() {
    if (const auto set = read_class_escape()) {
      last_letter_.reset();
      return {.text = set->to_class()};
    }
    const std::string word = CodePointSet::word().to_class();
    switch (peek()) {
      case 'A':
      case 'z':
      case 'Z':
        return {.text = std::string("\\") + regex_[at_++], .nullable = true, .repeatable = false};
      case 'b':
        ++at_;
        return {.text = "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))",
                .nullable = true,
                .repeatable = false};
      case 'B':
        ++at_;
        return {.text = "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))",
                .nullable = true,
                .repeatable = false};
      default:
        return literal(read_char_escape());
    }
  }

  // Reads an escape such as \s or \p{L} after a backslash; for other escapes returns nullopt and
  // consumes nothing.
  std::optional<CodePointSet> read_class_escape() {
    const char kind = peek();
    CodePointSet set;
    bool negated = kind >= 'A' && kind <= 'Z';
    switch (small_letter(static_cast<uint8_t>(kind))) {
      case 's':
        set = CodePointSet::white_space();
        break;
      case 'd':
        set.add(*find_categories("Nd"));
        break;
      case 'w':
        set = CodePointSet::word();
        break;
      case 'p': {
        ++at_;
        if (!take("{")) refuse();
        if (take("^")) negated = !negated;
        const size_t end = regex_.find('}', at_);
        const auto categories = end == std::string_view::npos
                                    ? std::nullopt
                                    : find_categories(regex_.substr(at_, end - at_));
        if (!categories) refuse();
        set.add(*categories);
        at_ = end;
        break;
      }
      default:
        return std::nullopt;
    }
    ++at_;
    if (any_case_) refuse();  // case variants of a whole class depend on tables
    return negated ? set.complement() : set;
  }

  // Reads an escape for one character after a backslash.
  char32_t read_char_escape() {
    const char32_t c = take_char();
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'x':
        if (take("{")) {
          const char32_t value = read_hex(1, 6);
          if (!take("}")) refuse();
          return value;
        }
        return read_hex(2, 2, 0x7F);  // above ASCII these are bytes
      case 'u':
        return read_hex(4, 4);
      default:
        if (is_alphanumeric(c) || c >= 128) {
          --at_;
          refuse();
        }
        return c;
    }
  }

  char32_t read_hex(int least, int most, char32_t limit = 0x10FFFF) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most; ++digits, ++at_) {
      const char c = peek();
      if (c >= '0' && c <= '9') {
        value = 16 * value + static_cast<char32_t>(c - '0');
      } else if (is_ascii_letter(static_cast<uint8_t>(c)) &&
                 small_letter(static_cast<uint8_t>(c)) <= 'f') {
        value =
            16 * value + static_cast<char32_t>(small_letter(static_cast<uint8_t>(c)) - 'a' + 10);
      } else {
        break;
      }
    }
    if (digits < least || value > limit || (value >= 0xD800 && value < 0xE000)) refuse();
    return value;
  }

  CodePointSet read_class() {
    ++at_;  // the bracket
    const bool negated = take("^");
    if (negated && any_case_) refuse();
    CodePointSet set;
    if (peek() == ']') refuse();
    while (!take("]")) {
      if (peek() == '[' || (peek() == '&' && peek(1) == '&')) refuse();
      if (take("\\")) {
        if (const auto part = read_class_escape()) {
          set.add(*part);
          if (peek() == '-' && peek(1) != ']') refuse();
          continue;
        }
        add_range(read_char_escape(), set);
      } else {
        add_range(take_char(), set);
      }
    }
    return negated ? set.complement() : set;
  }

  // Adds `first`, or the range that begins with it.
  void add_range(char32_t first, CodePointSet& set) {
    char32_t last = first;
    if (peek() == '-' && peek(1) != ']') {
      ++at_;
      if (peek() == '[') refuse();
      last = take_char();
      if (last == '\\') last = read_char_escape();
    }
    if (last < first) refuse();
    if (!any_case_) {
      set.add(first, last);
      return;
    }
    if (last >= 128) refuse();
    for (char32_t c = first; c <= last; ++c) {
      if (is_ascii_letter(c)) {
        add_any_case(small_letter(c), set);
      } else {
        set.add(c, c);
      }
    }
  }

  void read_quantifier(Part& item) {
    int least = 1;
    int most = 1;  // -1: any number
    const size_t begin = at_;
    if (take("*")) {
      least = 0;
      most = -1;
    } else if (take("+")) {
      most = -1;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      const bool counted = is_digit(peek());
      least = counted ? read_count() : 0;
      most = least;
      if (take(",")) {
        most = is_digit(peek()) ? read_count() : -1;
        if (!counted && most < 0) refuse();
      } else if (!counted) {
        refuse();
      }
      if (!take("}") || (most >= 0 && most < least)) refuse();
      // The package reads these as two quantifiers: X{n,m}+ repeats X{n,m}.
      if (peek() == '?' && most == least) refuse();
      if (peek() == '+') {
        if (!item.repeatable || item.nullable || least == 0) refuse();
        last_letter_.reset();
        item.text = "(?:" + item.text + std::string(regex_.substr(begin, at_ - begin)) + ")+";
        item.text += kCallout;
        ++at_;
        if (std::string_view("?*+{").find(peek()) != std::string_view::npos && peek() != '\0')
          refuse();
        return;
      }
    } else {
      return;
    }
    last_letter_.reset();
    if (!item.repeatable || (item.nullable && most != 1)) refuse();
    std::string text(regex_.substr(begin, at_ - begin));
    if (text.starts_with("{,")) text.insert(1, "0");
    if (peek() == '?' || peek() == '+') text += regex_[at_++];
    if (std::string_view("?*+{").find(peek()) != std::string_view::npos && peek() != '\0') refuse();
    item.text += text;
    if (most != least) item.text += kCallout;
    item.nullable = item.nullable || least == 0;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  int read_count() {
    int count = 0;
    for (; is_digit(peek()); ++at_) {
      count = 10 * count + (peek() - '0');
      if (count > kMaxRepeats) refuse();
    }
    return count;
  }

  std::string_view regex_;
  const std::string& where_;
  size_t at_ = 0;
  bool any_case_ = false;
  std::optional<char> last_letter_;  // the previous letter, if case is ignored
};

}  // namespace

std::string shorten_regex(std::string_view regex) {
  return utf8::replace_invalid(regex.substr(0, 200));
}

std::string to_pcre2(std::string_view regex, const std::string& where) {
  if (regex.size() > kMaxPatternBytes) {
    throw unsupported(where, format_text("a regular expression of {} bytes, above {}", regex.size(),
                                         kMaxPatternBytes));
  }
  return RegexTranslator(regex, where).translate();
}

}  // namespace finetune::tokenizer
