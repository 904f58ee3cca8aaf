// SPDX-License-Identifier: MIT
#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "finetune/base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json_fields.h"

namespace finetune::tokenizer {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Code points that the tables of the tokenizers package do not know and utf8proc does (or will):
// they stay as they are and nothing moves or joins across them.
constexpr Range kFrozen[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1AEB},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C0, 0x105FF}, {0x10781, 0x107BA},
    {0x10D24, 0x10D27}, {0x10D40, 0x10D8F}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x11380, 0x113FF}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5D0, 0x1E5FF}, {0x1F16C, 0x1F16C},
    {0x1FBF0, 0x1FBF9},
};

bool is_frozen(char32_t c) {
  const auto* range =
      std::upper_bound(std::begin(kFrozen), std::end(kFrozen), c,
                       [](char32_t value, const Range& r) { return value < r.first; });
  return range != std::begin(kFrozen) && c <= std::prev(range)->last;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 128; });
}

void append_normalized(std::string_view text, int options, std::string& result) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  FT_CHECK(size >= 0, "utf8proc refused well-formed text");
  result.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

std::string normalize_form(std::string_view text, int options) {
  if (is_ascii(text)) return std::string(text);
  std::string result;
  size_t start = 0;
  for (size_t offset = 0; offset < text.size();) {
    const size_t here = offset;
    if (!is_frozen(utf8::decode(text, offset))) continue;
    append_normalized(text.substr(start, here - start), options, result);
    result.append(text.substr(here, offset - here));
    start = offset;
  }
  append_normalized(text.substr(start), options, result);
  return result;
}

// Capital letters of Unicode 16 and 17, which installed libraries may not know yet.
char32_t lower(char32_t c) {
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0x1C89:
      return 0x1C8A;
    case 0xA7CB:
      return 0x264;
    case 0xA7CC:
      return 0xA7CD;
    case 0xA7CE:
      return 0xA7CF;
    case 0xA7D2:
      return 0xA7D3;
    case 0xA7D4:
      return 0xA7D5;
    case 0xA7DA:
      return 0xA7DB;
    case 0xA7DC:
      return 0x19B;
    default:
      return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = utf8::decode(text, offset);
    if (c < 128) {
      result += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (c == 0x130) {  // the only one that becomes two characters
      result += "i\xCC\x87";
    } else {
      utf8::append(result, lower(c));
    }
  }
  return result;
}

std::string replace_all(std::string_view text, const std::string& from, const std::string& to) {
  std::string result;
  size_t start = 0;
  for (size_t found; (found = text.find(from, start)) != std::string_view::npos;) {
    result.append(text.substr(start, found - start)).append(to);
    start = found + from.size();
  }
  return result.append(text.substr(start));
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = 0;
  bool seen = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t here = offset;
    if (char_class(utf8::decode(text, offset)) == CharClass::kSpace) continue;
    if (!seen) begin = here;
    seen = true;
    end = offset;
  }
  if (!seen) return left || right ? std::string() : std::string(text);
  if (!left) begin = 0;
  if (!right) end = text.size();
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

Normalizer::Normalizer(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_null()) add(json, where);
}

void Normalizer::add(const nlohmann::ordered_json& json, const std::string& where) {
  const std::string type = string_field(json, "type", where);
  if (type == "Sequence") {
    for (const auto& item : array_field(json, "normalizers", where)) add(item, where);
    return;
  }
  if (type == "NFC") {
    steps_.push_back({.kind = Kind::kNfc});
  } else if (type == "NFD") {
    steps_.push_back({.kind = Kind::kNfd});
  } else if (type == "NFKC") {
    steps_.push_back({.kind = Kind::kNfkc});
  } else if (type == "NFKD") {
    steps_.push_back({.kind = Kind::kNfkd});
  } else if (type == "Lowercase") {
    steps_.push_back({.kind = Kind::kLowercase});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::kPrepend, .content = string_field(json, "prepend", where)});
  } else if (type == "Strip") {
    steps_.push_back({.kind = Kind::kStrip,
                      .left = bool_field(json, "strip_left", where),
                      .right = bool_field(json, "strip_right", where)});
  } else if (type == "Replace") {
    const auto& pattern = field(json, "pattern", where);
    if (!pattern.is_object() || !pattern.contains("String")) {
      throw unsupported(where, "a Replace with a regular expression");
    }
    Step step{.kind = Kind::kReplace,
              .pattern = string_field(pattern, "String", where),
              .content = string_field(json, "content", where)};
    if (step.pattern.empty()) throw unsupported(where, "a Replace of an empty string");
    steps_.push_back(std::move(step));
  } else {
    throw unsupported(where, "the normalizer '" + type + "'");
  }
}

std::string Normalizer::apply(const Step& step, std::string text) {
  constexpr int kStable = UTF8PROC_STABLE;
  switch (step.kind) {
    case Kind::kNfc:
      return normalize_form(text, kStable | UTF8PROC_COMPOSE);
    case Kind::kNfd:
      return normalize_form(text, kStable | UTF8PROC_DECOMPOSE);
    case Kind::kNfkc:
      return normalize_form(text, kStable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case Kind::kNfkd:
      return normalize_form(text, kStable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    case Kind::kLowercase:
      return lowercase(text);
    case Kind::kPrepend:
      return text.empty() ? std::move(text) : step.content + text;
    case Kind::kReplace:
      return replace_all(text, step.pattern, step.content);
    case Kind::kStrip:
      return strip(text, step.left, step.right);
  }
  return text;
}

std::string Normalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) result = apply(step, std::move(result));
  return result;
}

}  // namespace finetune::tokenizer
