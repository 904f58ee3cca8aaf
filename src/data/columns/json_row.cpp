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

[[noreturn]] void fail(const std::string& position, const std::string& what) {
  throw Error(ErrorKind::kData, position + ": " + what);
}

std::vector<int64_t> integers(const Json& row, const std::string& column,
                              const std::string& position, bool bare) {
  const auto found = row.find(column);
  if (found == row.end()) {
    fail(position, "has no '" + column + "', unlike the first row; it has " + column_names(row));
  }
  if (bare && found->is_number_integer()) return {found->get<int64_t>()};
  std::vector<int64_t> values;
  if (!found->is_array()) fail(position, "'" + column + "' is not a list of integers");
  values.reserve(found->size());
  for (const Json& value : *found) {
    const bool fits = value.is_number_unsigned()
                          ? value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()}
                          : value.is_number_integer();
    if (!fits) {
      fail(position, format_text("'{}' holds {} at place {}, which is no integer", column,
                                 value.dump(-1, ' ', true).substr(0, 40), values.size() + 1));
    }
    values.push_back(value.get<int64_t>());
  }
  return values;
}

void check_same_length(const std::vector<int64_t>& values, const std::string& column, size_t ids,
                       const std::string& position) {
  if (values.size() != ids) {
    fail(position,
         format_text("'{}' has {} values, but 'input_ids' has {}; there must be one for each token",
                     column, values.size(), ids));
  }
}

void check_no_extra(const Json& row, const std::string& column, bool expected,
                    const std::string& position) {
  if (!expected && row.contains(column)) {
    fail(position,
         "has '" + column + "', unlike the first row; all rows must hold the same columns");
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

void check_token(int64_t id, const std::string& position, int64_t vocabulary) {
  if (id < 0) {
    throw Error(ErrorKind::kData,
                format_text("token id {} in {} is negative; ids start at 0", id, position));
  }
  const int64_t limit = vocabulary > 0 ? vocabulary : int64_t{1} << 31;
  if (id >= limit) {
    throw Error(ErrorKind::kData,
                format_text("token id {} in {} is beyond the model's vocabulary of {}; use the "
                            "tokenizer that belongs to the model, or a larger vocab_size",
                            id, position, limit));
  }
}

Json parse_row(std::string_view line, const std::string& position) {
  check_utf8(line, position);
  Json row;
  try {
    row = parse_json(line, position);
  } catch (const JsonError& error) {
    check_surrogates(line, position);
    fail(position, error.fault().problem + "; each line must be one complete JSON object");
  }
  if (!row.is_object()) {
    fail(position, std::string("is a JSON ") + row.type_name() +
                       ", not an object; write one object a line, {\"text\": \"...\"}");
  }
  return row;
}

Json parse_object(std::string_view text, const std::string& position) {
  check_utf8(text, position);
  Json row;
  try {
    row = parse_json(text, position);
  } catch (const JsonError& error) {
    check_surrogates(text, position);
    const JsonFault& fault = error.fault();
    fail(fault.line > 1 ? format_text("{}, line {}", position, fault.line) : position,
         fault.problem);
  }
  FT_CHECK(row.is_object(), "records of JSON begin with a brace");
  return row;
}

std::string text_of(Json& row, const RowSchema& schema, const std::string& position) {
  const auto name = match_column(row, schema.text_column);
  const auto found = name ? row.find(*name) : row.end();
  if (found == row.end()) {
    throw Error(ErrorKind::kConfig, position + ": has no column '" + schema.text_column +
                                        "'; it has " + column_names(row) +
                                        "; fix the row or set text_column");
  }
  if (!found->is_string()) {
    fail(position, "column '" + schema.text_column + "' holds " + found->type_name() +
                       " where text was expected");
  }
  return std::move(found->get_ref<std::string&>());
}

TokenRow tokens_of(const Json& row, const RowSchema& schema, const std::string& position,
                   const TokenLimits& limits) {
  TokenRow result;
  const std::vector<int64_t> ids = integers(row, "input_ids", position, schema.bare_lists);
  if (ids.empty()) fail(position, "'input_ids' is empty; leave the row out");
  if (limits.positions > 0 && static_cast<int64_t>(ids.size()) > limits.positions) {
    fail(position,
         format_text(
             "'input_ids' has {} tokens, more than the {} positions of the model; shorten the row",
             ids.size(), limits.positions));
  }
  check_no_extra(row, "labels", schema.labels, position);
  check_no_extra(row, "attention_mask", schema.masks, position);
  for (const int64_t id : ids) {
    check_token(id, position, limits.vocabulary);
    result.ids.push_back(static_cast<int32_t>(id));
  }
  if (schema.labels) {
    const std::vector<int64_t> labels = integers(row, "labels", position, schema.bare_lists);
    check_same_length(labels, "labels", ids.size(), position);
    for (const int64_t label : labels) {
      if (label != kIgnoredLabel) check_token(label, position, limits.vocabulary);
      result.labels.push_back(static_cast<int32_t>(label));
    }
  }
  if (schema.masks) {
    const std::vector<int64_t> mask = integers(row, "attention_mask", position, schema.bare_lists);
    check_same_length(mask, "attention_mask", ids.size(), position);
    for (const int64_t value : mask) {
      if (value != 0 && value != 1) {
        fail(position, format_text("'attention_mask' holds {}; it may hold 0 and 1", value));
      }
      result.mask.push_back(static_cast<uint8_t>(value));
    }
    if (std::find(mask.begin(), mask.end(), 1) == mask.end()) {
      fail(position, "'attention_mask' is 0 everywhere; at least one token must be attended to");
    }
  }
  return result;
}

}  // namespace finetune
