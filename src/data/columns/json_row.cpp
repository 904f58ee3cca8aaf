// SPDX-License-Identifier: MIT
#include "data/columns/json_row.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/readers/row_encoding.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"
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

}  // namespace

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
