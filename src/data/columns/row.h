// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/columns/row_source.h"

namespace finetune {

// Typed access to the columns of one row. Members throw Error(kData) with the row's position, the
// column and its value if the value has another type.
class Row {
 public:
  using Json = nlohmann::ordered_json;

  Row(Json columns, std::string position, bool typed, bool bare_lists = false)
      : columns_(std::move(columns)),
        position_(std::move(position)),
        typed_(typed),
        bare_lists_(bare_lists) {}
  Row(const RowBlock& block, const RowBlock::Row& row)
      : Row(block.parse(row), block.position(row), block.typed(), block.bare_lists()) {
    classes_ = block.classes;
  }

  [[nodiscard]] const Json& columns() const { return columns_; }
  [[nodiscard]] const std::string& position() const { return position_; }
  [[nodiscard]] bool typed() const { return typed_; }
  [[nodiscard]] bool bare_lists() const { return bare_lists_; }
  [[nodiscard]] std::vector<std::string> names() const;

  // Returns the row's spelling of a column: an exact match, else the only match without case and
  // surrounding spaces. The members below look up names in the same way.
  [[nodiscard]] std::optional<std::string> find(const std::string& name) const;
  // Whether the column exists and is neither null nor, if all values are text, empty.
  [[nodiscard]] bool has(const std::string& column) const;
  [[nodiscard]] const Json& at(const std::string& column) const;
  [[nodiscard]] const std::string& text(const std::string& column) const;
  // Returns a list or an object; if all values are text, parsed from JSON; with bare lists, also a
  // single value.
  [[nodiscard]] Json list(const std::string& column) const;
  [[nodiscard]] std::vector<std::string> texts(const std::string& column) const;
  // Returns the names of the column's classes in their order, if its file has a schema that names
  // them; else nullptr.
  [[nodiscard]] const std::vector<std::string>* classes(const std::string& column) const;

  // Throws Error(kData), for what is wrong in the row.
  [[noreturn]] void fail(const std::string& what) const;
  // Throws Error(kConfig), for what a change of a key that names columns or labels, or of the file,
  // fixes.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  Json columns_;
  std::string position_;
  bool typed_;
  bool bare_lists_;
  std::shared_ptr<const ClassNames> classes_;
};

// Returns "the text 'abc'", "the number 3", "null", "a list": short, ASCII except for text.
[[nodiscard]] std::string describe(const nlohmann::ordered_json& value);

// Returns the first row of all files, ignoring the range. Throws Error(kData) if there is none.
[[nodiscard]] Row first_row(const std::vector<std::string>& files, const RowOptions& options);

// Like visit_rows().
void for_each_row(const std::vector<std::string>& files, const RowOptions& options,
                  const std::function<bool(const Row&)>& visit);

// Whether a column contains text; in files where every value is text, text that is not a number.
[[nodiscard]] bool holds_text(const Row& row, const std::string& column);

// Returns a column's name without case (of ASCII letters) and surrounding spaces.
[[nodiscard]] std::string plain_column_name(const std::string& name);

// Returns the first of `names` that the row has, in the row's spelling; exact matches take
// precedence.
[[nodiscard]] std::optional<std::string> first_column(const Row& row,
                                                      const std::vector<std::string>& names);

// Parse an integer or a finite number in decimal without surrounding text.
[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<double> parse_number(std::string_view text);

}  // namespace finetune
