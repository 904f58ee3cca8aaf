// SPDX-License-Identifier: MIT
#include "data/columns/label_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "data/columns/json_row.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using Json = Row::Json;

bool has_integer_name(const LabelMap& labels) {
  return std::ranges::any_of(
      labels.names(), [](const std::string& name) { return parse_integer(name).has_value(); });
}

// A model that was trained on the numbers of classes knows them by these.
std::optional<int64_t> number_in_schema(const LabelMap& labels, const std::string& name,
                                        const Row& row, const std::string& column) {
  const std::vector<std::string>* classes = row.classes(column);
  if (classes == nullptr) return std::nullopt;
  const auto found = std::ranges::find(*classes, name);
  if (found == classes->end()) return std::nullopt;
  return labels.find(std::to_string(found - classes->begin()));
}

}  // namespace

std::optional<int64_t> integer_of(const Json& value, bool typed) {
  if (value.is_number_integer()) {
    const bool fits = !value.is_number_unsigned() ||
                      value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
    return fits ? std::optional(value.get<int64_t>()) : std::nullopt;
  }
  if (typed || !value.is_string()) return std::nullopt;
  return parse_integer(value.get_ref<const std::string&>());
}

std::optional<std::string> label_name(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return value.dump();
  if (value.is_number()) return format_double(value.get<double>());
  return std::nullopt;
}

int64_t label_number(const LabelMap& labels, const Json& value, const Row& row,
                     const std::string& column) {
  const auto name = label_name(value);
  if (name) {
    if (const auto number = labels.find(*name)) return *number;
    if (const auto number = number_in_schema(labels, *name, row, column)) return *number;
  }
  if (const auto integer = integer_of(value, row.typed())) {
    // If all values are text, "007" is the label named 7.
    if (const auto number = labels.find(std::to_string(*integer))) return *number;
    if (*integer == -1 || *integer == kIgnoredLabel) return kIgnoredLabel;
    if (*integer >= 0 && *integer < labels.size() && !has_integer_name(labels)) return *integer;
  }
  if (!name || name->empty()) {
    row.refuse("column '" + column + "' holds " + describe(value) + " where a label is expected");
  }
  row.refuse("column '" + column + "' holds " + describe(value) +
             ", which is no label; the labels are " + labels.list());
}

float number_of(const Json& value, const Row& row, const std::string& column) {
  std::optional<double> number;
  if (value.is_number()) number = value.get<double>();
  if (!row.typed() && value.is_string()) number = parse_number(value.get_ref<const std::string&>());
  if (!number) {
    row.fail("column '" + column + "' holds " + describe(value) + " where a number is expected");
  }
  const auto result = static_cast<float>(*number);
  if (!std::isfinite(result)) {
    row.fail("column '" + column + "' holds " + describe(value) + ", which is too large");
  }
  return result;
}

}  // namespace finetune
