// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/row_source.h"

namespace finetune {

// Typed access to the columns of one row. Members throw Error(kData) with the row's position, the
// column and its value if that has another type.
class Row {
 public:
  using Json = nlohmann::ordered_json;

  Row(Json columns, std::string place, bool typed, bool bare_lists = false)
      : columns_(std::move(columns)),
        place_(std::move(place)),
        typed_(typed),
        bare_lists_(bare_lists) {}
  Row(const RowBlock& block, const RowBlock::Row& row)
      : Row(block.parse(row), block.place(row), block.typed(), block.bare_lists()) {}

  [[nodiscard]] const Json& columns() const { return columns_; }
  [[nodiscard]] const std::string& place() const { return place_; }
  [[nodiscard]] bool typed() const { return typed_; }
  [[nodiscard]] bool bare_lists() const { return bare_lists_; }
  [[nodiscard]] std::vector<std::string> names() const;

  // The row's spelling of a column: the same name, else the only one that is the same without case
  // and surrounding spaces. The members below take names as this one does.
  [[nodiscard]] std::optional<std::string> find(const std::string& name) const;
  // There, and neither null nor, where all is text, empty.
  [[nodiscard]] bool has(const std::string& column) const;
  [[nodiscard]] const Json& at(const std::string& column) const;
  [[nodiscard]] const std::string& text(const std::string& column) const;
  // A list, or an object; where all is text, written in JSON; where lists are bare, one value too.
  [[nodiscard]] Json list(const std::string& column) const;
  [[nodiscard]] std::vector<std::string> texts(const std::string& column) const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  Json columns_;
  std::string place_;
  bool typed_;
  bool bare_lists_;
};

// "the text 'abc'", "the number 3", "null", "a list": short, ASCII except for text.
[[nodiscard]] std::string describe(const nlohmann::ordered_json& value);

// The first row of all files, whatever the range. Throws Error(kData) where there is none.
[[nodiscard]] Row first_row(const std::vector<std::string>& files, const RowOptions& options);

// As visit_rows().
void for_each_row(const std::vector<std::string>& files, const RowOptions& options,
                  const std::function<bool(const Row&)>& visit);

// A column that contains text; in files where every value is text, text that is not a number.
[[nodiscard]] bool holds_text(const Row& row, const std::string& column);

// A column's name without case (of ASCII letters) and surrounding spaces.
[[nodiscard]] std::string plain_column_name(const std::string& name);

// The first of `names` that the row has, in the row's spelling; the same names go first.
[[nodiscard]] std::optional<std::string> first_column(const Row& row,
                                                      const std::vector<std::string>& names);

// Integers and finite numbers in decimal, with nothing around them.
[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<double> parse_number(std::string_view text);

}  // namespace finetune
