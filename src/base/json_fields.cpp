// SPDX-License-Identifier: MIT
#include "finetune/base/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "finetune/base/printable.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Describes a value, which may be as large as its file.
std::string shown_value(const Json& value) {
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  if (value.is_array()) return value.empty() ? "[]" : "a list";
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

std::string range_text(const std::string& low, bool has_low, const std::string& high,
                       bool has_high) {
  if (has_low && has_high) return format_text(" from {} to {}", low, high);
  if (has_low) return " of at least " + low;
  return has_high ? " of at most " + high : "";
}

// Of a range with an end that is not allowed.
std::string open_range_text(const NumberRange& range) {
  const std::string low = (range.above_low ? " above " : " from ") + format_double(range.low);
  const std::string high = (range.below_high ? "below " : "at most ") + format_double(range.high);
  if (!std::isfinite(range.high)) return low;
  return std::isfinite(range.low) ? low + (range.above_low ? " and " : " to ") + high : " " + high;
}

std::string expected_integer(const IntegerRange& range) {
  constexpr int64_t kUnbounded = int64_t{1}
                                 << 62;  // limits that only guard against overflow are not printed
  return "a whole number" + range_text(std::to_string(range.low), range.low > -kUnbounded,
                                       std::to_string(range.high), range.high < kUnbounded);
}

std::string expected_number(const NumberRange& range) {
  if (range.above_low || range.below_high) return "a number" + open_range_text(range);
  return "a number" + range_text(format_double(range.low), std::isfinite(range.low),
                                 format_double(range.high), std::isfinite(range.high));
}

bool is_within(double value, const NumberRange& range) {
  return (range.above_low ? value > range.low : value >= range.low) &&
         (range.below_high ? value < range.high : value <= range.high);
}

// Whether `value` is a whole number in range; `result` is then that number.
bool take_integer(const Json& value, const IntegerRange& range, int64_t& result) {
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
    result = value.get<int64_t>();
  } else if (value.is_number_integer()) {
    result = value.get<int64_t>();
  } else if (range.allow_float && value.is_number_float()) {
    const auto number = value.get<double>();
    if (!(std::fabs(number) <= 0x1p53) || number != std::floor(number)) return false;
    result = static_cast<int64_t>(number);
  } else {
    return false;
  }
  return result >= range.low && result <= range.high;
}

}  // namespace

JsonFields::JsonFields(const Json& object, std::string where, ErrorKind kind, const char* advice)
    : object_(&object), where_(std::move(where)), advice_(advice), kind_(kind) {
  if (!object.is_object()) throw Error(kind_, where_ + ": must be a JSON object" + advice_);
}

JsonFields::JsonFields(Nested, const JsonFields& parent, const Json& object,
                       const std::string& path)
    : object_(&object),
      where_(parent.where_),
      path_(path + "."),
      advice_(parent.advice_),
      kind_(parent.kind_) {
  if (!object.is_object()) parent.refuse_value(path, object, "an object");
}

const Json* JsonFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& JsonFields::at(const char* name) const {
  if (const Json* found = find(name)) return *found;
  throw Error(kind_, format_text("{}: '{}{}' is missing{}", where_, path_, name, advice_));
}

int64_t JsonFields::integer(const char* name, IntegerRange range) const {
  return to_integer(path_ + name, at(name), range);
}

uint64_t JsonFields::unsigned_integer(const char* name) const {
  const Json& value = at(name);
  if (!value.is_number_unsigned()) refuse(name, "a whole number of at least 0");
  return value.get<uint64_t>();
}

double JsonFields::number(const char* name, NumberRange range) const {
  return to_number(path_ + name, at(name), range);
}

bool JsonFields::flag(const char* name) const {
  const Json& value = at(name);
  if (!value.is_boolean()) refuse(name, "true or false");
  return value.get<bool>();
}

std::string JsonFields::text(const char* name) const {
  const Json& value = at(name);
  if (!value.is_string()) refuse(name, "a string");
  return value.get<std::string>();
}

const Json& JsonFields::list(const char* name, size_t longest) const {
  const Json& value = at(name);
  if (!value.is_array()) refuse(name, "a list");
  if (value.size() > longest) refuse(name, format_text("a list of at most {} items", longest));
  return value;
}

const Json& JsonFields::object(const char* name) const {
  const Json& value = at(name);
  if (!value.is_object()) refuse(name, "an object");
  return value;
}

JsonFields JsonFields::fields(const char* name) const {
  return {Nested(), *this, at(name), path_ + name};
}

std::vector<JsonFields> JsonFields::items(const char* name, size_t longest) const {
  std::vector<JsonFields> result;
  for (const Json& item : list(name, longest)) {
    result.push_back({Nested(), *this, item, format_text("{}{}[{}]", path_, name, result.size())});
  }
  return result;
}

std::vector<int64_t> JsonFields::integers(const char* name, IntegerRange range,
                                          size_t longest) const {
  std::vector<int64_t> result;
  for (const Json& item : list(name, longest)) {
    result.push_back(to_integer(format_text("{}{}[{}]", path_, name, result.size()), item, range));
  }
  return result;
}

std::vector<double> JsonFields::numbers(const char* name, NumberRange range, size_t longest) const {
  std::vector<double> result;
  for (const Json& item : list(name, longest)) {
    result.push_back(to_number(format_text("{}{}[{}]", path_, name, result.size()), item, range));
  }
  return result;
}

std::vector<std::string> JsonFields::texts(const char* name) const {
  std::vector<std::string> result;
  for (const Json& item : list(name)) {
    if (!item.is_string()) {
      refuse_value(format_text("{}{}[{}]", path_, name, result.size()), item, "a string");
    }
    result.push_back(item.get<std::string>());
  }
  return result;
}

void JsonFields::read(const char* name, int64_t& value, IntegerRange range) const {
  if (find(name) != nullptr) value = integer(name, range);
}

void JsonFields::read(const char* name, double& value, NumberRange range) const {
  if (find(name) != nullptr) value = number(name, range);
}

void JsonFields::read(const char* name, bool& value) const {
  if (find(name) != nullptr) value = flag(name);
}

void JsonFields::read(const char* name, std::string& value) const {
  if (find(name) != nullptr) value = text(name);
}

void JsonFields::refuse(const char* name, const std::string& expected) const {
  refuse_value(path_ + name, at(name), expected);
}

int64_t JsonFields::to_integer(const std::string& path, const Json& value,
                               const IntegerRange& range) const {
  int64_t result = 0;
  if (!take_integer(value, range, result)) refuse_value(path, value, expected_integer(range));
  return result;
}

double JsonFields::to_number(const std::string& path, const Json& value,
                             const NumberRange& range) const {
  if (range.allow_nonfinite) {
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    if (value == "nan") return std::nan("");
  }
  const double result = value.is_number() ? value.get<double>() : std::nan("");
  if (!is_within(result, range)) refuse_value(path, value, expected_number(range));
  return result;
}

void JsonFields::refuse_value(const std::string& path, const Json& value,
                              const std::string& expected) const {
  throw Error(kind_, format_text("{}: '{}' must be {}, not {}{}", where_, path, expected,
                                 shown_value(value), advice_));
}

}  // namespace finetune
