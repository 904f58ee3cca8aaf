// SPDX-License-Identifier: MIT
#include "chat/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "finetune/base/utf8.h"

namespace finetune::chat {
namespace {

int category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_letter(char32_t c) {
  const int group = category(c);
  return group >= UTF8PROC_CATEGORY_LU && group <= UTF8PROC_CATEGORY_LO;
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

// Appends one character in another case, which may be two letters: those of Unicode's SpecialCasing
// that occur in words are included.
void append_case(TracedText& to, char32_t c, Case wanted, Source source) {
  const bool upper = wanted == Case::kUpper;
  std::string text;
  if (c == U'ß' && wanted != Case::kLower) {
    text = upper ? "SS" : "Ss";
  } else if (c >= 0xFB00 && c <= 0xFB06 && wanted != Case::kLower) {
    static constexpr const char* kUpper[] = {"FF", "FI", "FL", "FFI", "FFL", "ST", "ST"};
    static constexpr const char* kTitle[] = {"Ff", "Fi", "Fl", "Ffi", "Ffl", "St", "St"};
    text = (upper ? kUpper : kTitle)[c - 0xFB00];
  } else if (c == U'İ' && wanted == Case::kLower) {
    text = "i\xCC\x87";
  } else {
    const auto code = static_cast<utf8proc_int32_t>(c);
    utf8::append(text, static_cast<char32_t>(upper                    ? utf8proc_toupper(code)
                                             : wanted == Case::kLower ? utf8proc_tolower(code)
                                                                      : utf8proc_totitle(code)));
  }
  to.append(text, source);
}

bool has_class(char32_t c, Class wanted) {
  switch (wanted) {
    case Class::kAlpha:
      return is_letter(c);
    case Class::kDigit:
      return category(c) == UTF8PROC_CATEGORY_ND;
    case Class::kAlnum:
      return is_letter(c) ||
             (category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO);
    case Class::kSpace:
      return is_space(c);
    case Class::kUpper:
      return !is_lower(c);
    case Class::kLower:
      return !is_upper(c);
  }
  return false;
}

}  // namespace

bool is_space(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

ByteRange stripped(std::string_view text, Ends ends, const std::string* chars) {
  const auto is_stripped = [&](size_t begin, size_t end) {
    size_t at = begin;
    if (chars == nullptr) return is_space(utf8::decode(text, at));
    return chars->find(text.substr(begin, end - begin)) != std::string::npos;
  };
  ByteRange range{0, text.size()};
  const size_t of_character = chars == nullptr ? 4 : 8 + chars->size() / 4;
  while (ends != Ends::kRight && range.begin < range.end) {
    size_t next = range.begin;
    next = next_character(text, next);
    Limits::work(of_character);
    if (!is_stripped(range.begin, next)) break;
    range.begin = next;
  }
  while (ends != Ends::kLeft && range.end > range.begin) {
    size_t last = range.end - 1;
    while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
    Limits::work(of_character);
    if (!is_stripped(last, range.end)) break;
    range.end = last;
  }
  return range;
}

size_t next_character(std::string_view text, size_t offset) {
  (void)utf8::decode(text, offset);
  return offset;
}

int64_t length(std::string_view text) {
  Limits::work(text.size() / 4);
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at = next_character(text, at);
  Limits::work(2 * at);
  return at;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // memmem() is linear; std::string::find() takes size * part.size() on repetitive text. The worst
  // text takes ten times as long as any other.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  const size_t at = found == nullptr
                        ? text.size()
                        : static_cast<size_t>(static_cast<const char*>(found) - text.data());
  Limits::work(8 + (at - from) * (part.size() == 1 ? 1 : 4) + part.size() / 2);
  return found == nullptr ? std::string_view::npos : at;
}

size_t find_last_text(std::string_view text, std::string_view part) {
  if (part.size() > text.size()) return std::string_view::npos;
  for (size_t at = text.size() - part.size() + 1; at-- > 0;) {
    const bool may_be = part.empty() || text[at] == part[0];
    Limits::work(may_be ? 4 + part.size() / 8 : 1);
    if (may_be && text.substr(at, part.size()) == part) return at;
  }
  return std::string_view::npos;
}

TracedText with_case(const TracedText& text, Case wanted) {
  TracedText result;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Source source = text.source_at(at);
    const char32_t c = utf8::decode(text.str(), at);
    const bool first = wanted == Case::kTitle ? !in_word : result.empty();
    const Case other = first ? Case::kTitle : Case::kLower;
    append_case(result, c, wanted == Case::kUpper || wanted == Case::kLower ? wanted : other,
                source);
    in_word = is_letter(c);
  }
  return result;
}

bool is_all(std::string_view text, Class wanted) {
  bool has_cased = wanted != Class::kUpper && wanted != Class::kLower;
  for (size_t at = 0; at < text.size();) {
    Limits::work(8);
    const char32_t c = utf8::decode(text, at);
    if (!has_class(c, wanted)) return false;
    has_cased = has_cased || is_upper(c) || is_lower(c);
  }
  return !text.empty() && has_cased;
}

}  // namespace finetune::chat
