// SPDX-License-Identifier: MIT
#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "chat/characters.h"
#include "finetune/base/error.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune::chat {

void fail_at(const std::string& where, Position at, const std::string& problem) {
  throw Error(ErrorKind::kData, format_text("{}:{}:{}: {}", where, at.line, at.column,
                                            shortened(problem, Limits::kMaxMessage)));
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

// "\r\n" and "\r" become "\n", and one line break at the end is dropped, as jinja2 does.
std::string normalized(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
      continue;
    }
    result += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

constexpr std::array<std::string_view, 8> kLongOperators = {
    "==", "!=", "<=", ">=", "//", "**", "&&", "||"};
constexpr std::string_view kOperators = "+-*/%~<>=.,:|()[]{};";

class Lexer {
 public:
  Lexer(std::string text, const std::string& where) : text_(std::move(text)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool has(std::string_view part, size_t offset = 0) const {
    return std::string_view(text_).substr(std::min(text_.size(), at_ + offset)).starts_with(part);
  }
  [[nodiscard]] char sign(size_t offset) const {
    const char c = at_ + offset < text_.size() ? text_[at_ + offset] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void move_to(size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] == '\n') {
        ++position_.line;
        position_.column = 0;
      }
      ++position_.column;
    }
  }
  void skip_space() { move_to(after_space(at_)); }
  [[nodiscard]] size_t after_space(size_t at) const {
    return at + stripped(std::string_view(text_).substr(at), Ends::kLeft).begin;
  }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), position_});
  }
  [[noreturn]] void fail(const std::string& problem) const { fail_at(where_, position_, problem); }

  // Removes the end of `data` that the tag at `at_` strips: all white space for "-", else, before a
  // block or comment, the white space of a line that the tag begins (lstrip_blocks).
  [[nodiscard]] std::string_view without_end(std::string_view data, bool is_variable) const {
    const char mark = sign(2);
    if (mark == '-') {
      data = data.substr(0, stripped(data, Ends::kRight).end);
    } else if (mark != '+' && !is_variable) {
      const size_t line = data.rfind('\n') + 1;  // 0 without a line break
      const bool begins_line = line > 0 || line_starts_;
      const std::string_view last = data.substr(line);
      if (begins_line && stripped(last, Ends::kLeft).begin == last.size()) {
        data = data.substr(0, line);
      }
    }
    return data;
  }

  void read_data() {
    size_t tag = at_;
    while (tag < text_.size() &&
           !(text_[tag] == '{' && tag + 1 < text_.size() &&
             (text_[tag + 1] == '%' || text_[tag + 1] == '{' || text_[tag + 1] == '#'))) {
      ++tag;
    }
    const std::string_view data = std::string_view(text_).substr(at_, tag - at_);
    const Position begin = position_;
    move_to(tag);
    const bool is_variable = has("{{");
    const std::string_view kept = tag < text_.size() ? without_end(data, is_variable) : data;
    if (!kept.empty()) tokens_.push_back({Token::Kind::kData, std::string(kept), begin});
    if (tag == text_.size()) return;
    if (has("{#")) return skip_comment();
    if (!is_variable && is_raw()) return read_raw();
    add(is_variable ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    move_to(at_ + (sign(2) != '\0' ? 3 : 2));
    read_expression(is_variable);
  }

  // Moves past the end of a tag: "-" strips the white space after it, "+" keeps a line break
  // that a block or comment would strip (trim_blocks).
  void end_tag(size_t length, char mark, bool trims) {
    move_to(at_ + length);
    if (mark == '-') {
      skip_space();
    } else if (mark != '+' && trims && has("\n")) {
      move_to(at_ + 1);
    }
    line_starts_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t begin = at_ + (sign(2) != '\0' ? 3 : 2);
    const size_t end = text_.find("#}", begin);
    if (end == std::string::npos) fail("this comment has no end '#}'");
    const char before = text_[end - 1];
    const bool has_mark = end > begin && (before == '-' || before == '+');
    move_to(end);
    end_tag(2, has_mark ? before : '\0', true);
  }

  [[nodiscard]] size_t word_after_tag(std::string_view word) const {
    size_t at = at_ + 2 + (sign(2) != '\0' ? 1 : 0);
    at = after_space(at);
    if (!std::string_view(text_).substr(at).starts_with(word)) return std::string::npos;
    at = after_space(at + word.size());
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    return std::string_view(text_).substr(at).starts_with("%}") ? at : std::string::npos;
  }
  [[nodiscard]] bool is_raw() const { return word_after_tag("raw") != std::string::npos; }

  void read_raw() {
    const Position begin = position_;
    const size_t open = word_after_tag("raw");
    const char mark = text_[open - 1];
    move_to(open);
    end_tag(2, mark == '-' ? '-' : '\0', false);
    const size_t start = at_;
    const Position data_begin = position_;
    for (size_t tag = text_.find("{%", at_); tag != std::string::npos;
         tag = text_.find("{%", tag + 2)) {
      move_to(tag);
      const size_t close = word_after_tag("endraw");
      if (close == std::string::npos) continue;
      std::string_view data = std::string_view(text_).substr(start, tag - start);
      data = without_end(data, false);
      if (!data.empty()) tokens_.push_back({Token::Kind::kData, std::string(data), data_begin});
      const char end_mark = text_[close - 1];
      move_to(close);
      return end_tag(2, end_mark == '-' || end_mark == '+' ? end_mark : '\0', true);
    }
    fail_at(where_, begin, "'raw' has no 'endraw'");
  }

  void read_expression(bool is_variable) {
    const std::string_view end = is_variable ? "}}" : "%}";
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ >= text_.size()) fail("this tag has no end '" + std::string(end) + "'");
      const char mark = sign(0);
      if (open.empty()) {
        const bool signed_end = mark != '\0' && (mark == '-' || !is_variable) && has(end, 1);
        if (signed_end || has(end)) {
          add(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, "");
          return end_tag(signed_end ? 3 : 2, signed_end ? mark : '\0', !is_variable);
        }
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = text_[at_];
    if (c == '"' || c == '\'') return read_text(c);
    if (is_digit(c)) return read_number();
    if (starts_name(c)) return read_name();
    for (const std::string_view name : kLongOperators) {
      if (!has(name)) continue;
      if (name == "&&" || name == "||")
        fail("write 'and' and 'or', not '" + std::string(name) + "'");
      add(Token::Kind::kOperator, std::string(name));
      return move_to(at_ + 2);
    }
    if (kOperators.find(c) == std::string_view::npos) {
      fail(std::string("unexpected character '") + c + "'");
    }
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) fail(std::string("unexpected '") + c + "'");
      open.pop_back();
    }
    add(Token::Kind::kOperator, std::string(1, c));
    move_to(at_ + 1);
  }

  void read_name() {
    size_t end = at_;
    while (end < text_.size() && (starts_name(text_[end]) || is_digit(text_[end]))) ++end;
    add(Token::Kind::kName, text_.substr(at_, end - at_));
    move_to(end);
  }

  void read_number() {
    size_t end = at_;
    const auto digits = [&](const auto& accepts) {
      while (end < text_.size() && (accepts(text_[end]) || text_[end] == '_')) ++end;
    };
    std::string text;
    const auto radix = text_[at_] == '0' && at_ + 1 < text_.size()
                           ? std::tolower(static_cast<unsigned char>(text_[at_ + 1]))
                           : 0;
    bool is_integer = true;
    if (radix == 'x' || radix == 'o' || radix == 'b') {
      end += 2;
      digits([](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    } else {
      digits(is_digit);
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
        is_integer = false;
        ++end;
        digits(is_digit);
      }
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        size_t digit = end + 1;
        if (digit < text_.size() && (text_[digit] == '+' || text_[digit] == '-')) ++digit;
        if (digit < text_.size() && is_digit(text_[digit])) {
          is_integer = false;
          end = digit;
          digits(is_digit);
        }
      }
    }
    for (size_t i = at_; i < end; ++i) {
      if (text_[i] != '_') text += text_[i];
    }
    add(is_integer ? Token::Kind::kInteger : Token::Kind::kNumber, text);
    move_to(end);
  }

  // Reads \xHH, \uHHHH or \UHHHHHHHH; `at` is the offset of the letter.
  void append_code(std::string& value, size_t& at, size_t digits) const {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char digit = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) {
        fail("an escape in this text has too few digits");
      }
      code = code * 16 +
             static_cast<char32_t>(is_digit(digit) ? digit - '0' : (digit | 32) - 'a' + 10);
      ++at;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      fail("an escape in this text is no character");
    }
    utf8::append(value, code);
  }

  void append_escape(std::string& value, size_t& at) const {
    static constexpr std::string_view kLetters = "ntrbfav\\'\"";
    static constexpr std::string_view kMeaning = "\n\t\r\b\f\a\v\\'\"";
    const char c = text_[at];
    const size_t found = kLetters.find(c);
    if (c == '\n') return;
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t i = 0;
      for (; i < 3 && at + i < text_.size() && text_[at + i] >= '0' && text_[at + i] <= '7'; ++i) {
        code = code * 8 + static_cast<char32_t>(text_[at + i] - '0');
      }
      at += i - 1;
      utf8::append(value, code);
    } else if (found != std::string_view::npos) {
      value += kMeaning[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(value, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else {
      value += '\\';
      value += c;
    }
  }

  void read_text(char quote) {
    std::string value;
    size_t at = at_ + 1;
    for (; at < text_.size() && text_[at] != quote; ++at) {
      if (text_[at] != '\\') {
        value += text_[at];
      } else if (++at < text_.size()) {
        append_escape(value, at);
      }
    }
    if (at >= text_.size()) fail("this text has no closing quote");
    add(Token::Kind::kText, std::move(value));
    move_to(at + 1);
  }

  std::string text_;
  const std::string& where_;
  size_t at_ = 0;
  Position position_;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, const std::string& where) {
  if (const size_t bad = utf8::find_invalid(text); bad != std::string_view::npos) {
    throw Error(ErrorKind::kData, format_text("{}: byte {} is no valid UTF-8", where, bad));
  }
  return Lexer(normalized(text), where).run();
}

}  // namespace finetune::chat
