// SPDX-License-Identifier: MIT
#include "data/columns/row.h"

#include <charconv>
#include <cmath>

#include "data/columns/json_row.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"
#include "finetune/data/columns.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string shortened(const std::string& text) {
  constexpr size_t kMostCharacters = 40;
  size_t end = 0;
  for (size_t i = 0; i < kMostCharacters && end < text.size(); ++i) {
    static_cast<void>(utf8::decode(text, end));
  }
  return end < text.size() ? text.substr(0, end) + "..." : text;
}

}  // namespace

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      return text.empty() ? "an empty text" : "the text '" + shortened(text) + "'";
    }
    case Json::value_t::null:
      return "null";
    case Json::value_t::array:
      return value.empty() ? "an empty list" : "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return "the number " + value.dump();
  }
}

std::vector<std::string> Row::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : columns_.items()) names.push_back(name);
  return names;
}

std::optional<std::string> Row::find(const std::string& name) const {
  return match_column(columns_, name);
}

bool Row::has(const std::string& column) const {
  const auto name = find(column);
  const auto found = name ? columns_.find(*name) : columns_.end();
  if (found == columns_.end() || found->is_null()) return false;
  return typed_ || !found->get_ref<const std::string&>().empty();
}

const Json& Row::at(const std::string& column) const {
  const auto found = columns_.find(column);
  if (found == columns_.end()) {
    if (const auto name = find(column)) return columns_.at(*name);
    refuse("column '" + column + "' is not there" + did_you_mean(column, names()) +
           "; the row has " + column_names(columns_));
  }
  return *found;
}

const std::string& Row::text(const std::string& column) const {
  const Json& value = at(column);
  if (!value.is_string()) {
    fail("column '" + column + "' holds " + describe(value) + " where text is expected");
  }
  return value.get_ref<const std::string&>();
}

Json Row::list(const std::string& column) const {
  const Json& value = at(column);
  if (value.is_array() || value.is_object()) return value;
  if (bare_lists_ && !value.is_null()) return Json::array({value});
  if (!typed_ && value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.starts_with('[') || text.starts_with('{')) {
      return parse_json(text, position_ + ": column '" + column + "'");
    }
  }
  fail("column '" + column + "' holds " + describe(value) + " where a list is expected" +
       (typed_ ? "" : " (written in JSON, [\"a\", \"b\"])"));
}

std::vector<std::string> Row::texts(const std::string& column) const {
  const Json values = list(column);
  if (!values.is_array()) fail("column '" + column + "' holds an object where a list is expected");
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const Json& value : values) {
    if (!value.is_string()) {
      fail(format_text("column '{}' holds {} at place {} of its list where text is expected",
                       column, describe(value), texts.size() + 1));
    }
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

const std::vector<std::string>* Row::classes(const std::string& column) const {
  if (classes_ == nullptr || classes_->empty()) return nullptr;
  const auto name = find(column);
  const auto found = name ? classes_->find(*name) : classes_->end();
  return found == classes_->end() ? nullptr : &found->second;
}

void Row::fail(const std::string& what) const {
  throw Error(ErrorKind::kData, position_ + ": " + what);
}

Row first_row(const std::vector<std::string>& files, const RowOptions& options) {
  RowOptions all;
  all.key = options.key;
  all.json_lines = options.json_lines;
  all.reading = options.reading;
  all.replace_broken_utf8 = options.replace_broken_utf8;
  RowSource source(files, all);
  std::optional<Row> found;
  source.on_first_row([&](const RowBlock& block) {
    if (!found) found.emplace(block, block.rows.front());
  });
  RowBlock block;
  static_cast<void>(source.next(block, 1));
  if (found) return std::move(*found);
  throw Error(ErrorKind::kData, options.key + ": '" + source.files().front() +
                                    "' holds no rows; fill it or name another file");
}

bool holds_text(const Row& row, const std::string& column) {
  const Json& value = row.at(column);
  if (!value.is_string()) return false;
  return row.typed() || !parse_number(value.get_ref<const std::string&>());
}

void Row::refuse(const std::string& what) const {
  throw Error(ErrorKind::kConfig, position_ + ": " + what);
}

std::optional<std::string> first_column(const Row& row, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (row.columns().contains(name)) return name;
  }
  for (const std::string& name : names) {
    if (auto found = row.find(name)) return found;
  }
  return std::nullopt;
}

std::string plain_column_name(const std::string& name) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const size_t begin = name.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return "";
  return lower_case(name.substr(begin, name.find_last_not_of(kSpaces) + 1 - begin));
}

std::optional<std::string> match_column(const Json& columns, const std::string& name) {
  if (columns.contains(name)) return name;
  const std::string plain = plain_column_name(name);
  std::optional<std::string> found;
  for (const auto& [other, value] : columns.items()) {
    if (plain_column_name(other) != plain) continue;
    if (found) return std::nullopt;
    found = other;
  }
  return found;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

void for_each_row(const std::vector<std::string>& files, const RowOptions& options,
                  const std::function<bool(const Row&)>& visit) {
  RowSource source(files, options);
  RowBlock block;
  while (source.next(block)) {
    interrupt::throw_if_requested("reading " + options.key);
    for (const RowBlock::Row& row : block.rows) {
      if (!visit(Row(block, row))) return;
    }
    if (options.progress) options.progress(source.fraction());
  }
}

void visit_rows(const std::vector<std::string>& files, const RowOptions& options,
                const std::function<bool(const DataRow&)>& visit) {
  for_each_row(files, options, [&](const Row& row) {
    return visit({.columns = row.columns(),
                  .position = row.position(),
                  .typed = row.typed(),
                  .bare_lists = row.bare_lists()});
  });
}

}  // namespace finetune
