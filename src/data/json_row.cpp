// SPDX-License-Identifier: MIT
#include "data/json_row.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/data/batch.h"
#include "finetune/data/columns.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& place, const std::string& what) {
  throw Error(ErrorKind::kData, place + ": " + what);
}

std::vector<int64_t> integers(const Json& row, const std::string& column, const std::string& place,
                              bool bare) {
  const auto found = row.find(column);
  if (found == row.end()) {
    fail(place, "has no '" + column + "', unlike the first row; it has " + column_names(row));
  }
  if (bare && found->is_number_integer()) return {found->get<int64_t>()};
  std::vector<int64_t> values;
  if (!found->is_array()) fail(place, "'" + column + "' is not a list of integers");
  values.reserve(found->size());
  for (const Json& value : *found) {
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
                          : value.is_number_integer();
    if (!fits) {
      fail(place, format_text("'{}' holds {} at place {}, which is no integer", column,
                              value.dump(-1, ' ', true).substr(0, 40), values.size() + 1));
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

void check_same_length(const std::vector<int64_t>& values, const std::string& column, size_t ids,
                       const std::string& place) {
  if (values.size() != ids) {
    fail(place,
         format_text("'{}' has {} values, but 'input_ids' has {}; there must be one for each token",
                     column, values.size(), ids));
  }
}

void check_no_extra(const Json& row, const std::string& column, bool expected,
                    const std::string& place) {
  if (!expected && row.contains(column)) {
    fail(place, "has '" + column + "', unlike the first row; all rows must hold the same columns");
  }
}

constexpr size_t kEscape = 6;  // characters of an escape such as \u0041

// The UTF-16 code unit of an escape at `at`; 0 if there is none.
uint32_t escaped_unit(std::string_view json, size_t at) {
  if (at + kEscape > json.size() || json[at] != '\\' || json[at + 1] != 'u') return 0;
  uint32_t unit = 0;
  const char* end = json.data() + at + kEscape;
  const auto result = std::from_chars(json.data() + at + 2, end, unit, 16);
  return result.ec == std::errc() && result.ptr == end ? unit : 0;
}

// Returns the position within a row, which may span several lines; `place` names the first.
std::string place_in_row(std::string_view text, size_t at) {
  int64_t lines = 0;
  size_t begin = 0;
  for (size_t i = 0; i < at; ++i) {
    if (text[i] != '\n' && (text[i] != '\r' || text[i + 1] == '\n')) continue;
    ++lines;
    begin = i + 1;
  }
  const std::string byte = format_text("byte {} of ", at - begin + 1);
  return byte + (lines == 0 ? "the line" : format_text("line {} of the row", lines + 1));
}

// Returns the column whose name or value is at offset `at` of an object as Python writes it.
std::string_view column_at(std::string_view text, size_t at) {
  std::string_view column;
  size_t begin = 0;  // of the string
  bool in_string = false;
  int depth = 0;
  for (size_t i = 0; i < at; ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c != '"') continue;
      in_string = false;
      if (depth == 1 && text.substr(i + 1).starts_with(':')) {
        column = text.substr(begin, i - begin);
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
      begin = i + 1;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return column;
}

void check_surrogates(std::string_view text, const std::string& place) {
  const size_t lone = find_lone_surrogate(text);
  if (lone == std::string_view::npos) return;
  fail(place,
       "the escape " + std::string(text.substr(lone, kEscape)) + " at " + place_in_row(text, lone) +
           " is half of a character (a lone surrogate); fix the program that wrote it, or set "
           "encoding_errors: replace");
}

}  // namespace

size_t find_lone_surrogate(std::string_view json, size_t from) {
  for (size_t i = json.find('\\', from); i != std::string_view::npos; i = json.find('\\', i)) {
    const uint32_t unit = escaped_unit(json, i);
    if (unit < 0xD800 || unit > 0xDFFF) {
      i += 2;
      continue;
    }
    const uint32_t next = escaped_unit(json, i + kEscape);
    if (unit >= 0xDC00 || next < 0xDC00 || next > 0xDFFF) return i;
    i += 2 * kEscape;
  }
  return std::string_view::npos;
}

std::string replace_lone_surrogates(std::string json) {
  for (size_t at = 0; (at = find_lone_surrogate(json, at)) != std::string::npos;) {
    json.replace(at, kEscape, "\\ufffd");
  }
  return json;
}

void check_arrow_text(std::string_view text, const std::string& place) {
  const size_t invalid = utf8::find_invalid(text);
  if (invalid == std::string_view::npos) return;
  fail(place, "column '" + utf8::replace_invalid(column_at(text, invalid)) +
                  "' holds bytes that are no UTF-8 text; write it as text, or set "
                  "encoding_errors: replace");
}

std::string column_names(const Json& row) {
  constexpr size_t kMostNames = 10;
  if (row.empty()) return "no columns";
  std::string names;
  size_t count = 0;
  for (const auto& [name, value] : row.items()) {
    if (++count > kMostNames) return names + ", ...";
    names += (count == 1 ? "the columns " : ", ") + Json(name).dump();
  }
  return names;
}

void check_utf8(std::string_view text, const std::string& place) {
  const size_t invalid = utf8::find_invalid(text);
  if (invalid == std::string_view::npos) return;
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(text[invalid]);
  fail(place, std::string("invalid UTF-8 (0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ") at " +
                  place_in_row(text, invalid) +
                  "; convert the file to UTF-8, for example with iconv, or set "
                  "encoding_errors: replace");
}

void check_token(int64_t id, const std::string& place, int64_t vocabulary) {
  if (id < 0) {
    throw Error(ErrorKind::kData,
                format_text("token id {} in {} is negative; ids start at 0", id, place));
  }
  const int64_t limit = vocabulary > 0 ? vocabulary : int64_t{1} << 31;
  if (id >= limit) {
    throw Error(ErrorKind::kData,
                format_text("token id {} in {} is beyond the model's vocabulary of {}; use the "
                            "tokenizer that belongs to the model, or a larger vocab_size",
                            id, place, limit));
  }
}

Json parse_row(std::string_view line, const std::string& place) {
  check_utf8(line, place);
  Json row;
  try {
    row = parse_json(line, place);
  } catch (const JsonError& error) {
    check_surrogates(line, place);
    fail(place, error.fault().problem + "; each line must be one complete JSON object");
  }
  if (!row.is_object()) {
    fail(place, std::string("is a JSON ") + row.type_name() +
                    ", not an object; write one object a line, {\"text\": \"...\"}");
  }
  return row;
}

Json parse_object(std::string_view text, const std::string& place) {
  check_utf8(text, place);
  Json row;
  try {
    row = parse_json(text, place);
  } catch (const JsonError& error) {
    check_surrogates(text, place);
    const JsonFault& fault = error.fault();
    fail(fault.line > 1 ? format_text("{}, line {}", place, fault.line) : place, fault.problem);
  }
  FT_CHECK(row.is_object(), "records of JSON begin with a brace");
  return row;
}

std::string text_of(Json& row, const RowSchema& schema, const std::string& place) {
  const auto name = match_column(row, schema.text_column);
  const auto found = name ? row.find(*name) : row.end();
  if (found == row.end()) {
    fail(place, "has no column '" + schema.text_column + "'; it has " + column_names(row) +
                    "; fix the row or set text_column");
  }
  if (!found->is_string()) {
    fail(place, "column '" + schema.text_column + "' holds " + found->type_name() +
                    " where text was expected");
  }
  return std::move(found->get_ref<std::string&>());
}

TokenRow tokens_of(const Json& row, const RowSchema& schema, const std::string& place,
                   const TokenLimits& limits) {
  TokenRow result;
  const std::vector<int64_t> ids = integers(row, "input_ids", place, schema.bare_lists);
  if (ids.empty()) fail(place, "'input_ids' is empty; leave the row out");
  if (limits.positions > 0 && static_cast<int64_t>(ids.size()) > limits.positions) {
    fail(place,
         format_text(
             "'input_ids' has {} tokens, more than the {} positions of the model; shorten the row",
             ids.size(), limits.positions));
  }
  check_no_extra(row, "labels", schema.labels, place);
  check_no_extra(row, "attention_mask", schema.masks, place);
  for (const int64_t id : ids) {
    check_token(id, place, limits.vocabulary);
    result.ids.push_back(static_cast<int32_t>(id));
  }
  if (schema.labels) {
    const std::vector<int64_t> labels = integers(row, "labels", place, schema.bare_lists);
    check_same_length(labels, "labels", ids.size(), place);
    for (const int64_t label : labels) {
      if (label != kIgnoredLabel) check_token(label, place, limits.vocabulary);
      result.labels.push_back(static_cast<int32_t>(label));
    }
  }
  if (schema.masks) {
    const std::vector<int64_t> mask = integers(row, "attention_mask", place, schema.bare_lists);
    check_same_length(mask, "attention_mask", ids.size(), place);
    for (const int64_t value : mask) {
      if (value != 0 && value != 1) {
        fail(place, format_text("'attention_mask' holds {}; it may hold 0 and 1", value));
      }
      result.mask.push_back(static_cast<uint8_t>(value));
    }
    if (std::find(mask.begin(), mask.end(), 1) == mask.end()) {
      fail(place, "'attention_mask' is 0 everywhere; at least one token must be attended to");
    }
  }
  return result;
}

}  // namespace finetune
