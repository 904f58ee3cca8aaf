// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/config/techniques.h"

namespace finetune {

// Reads a stored decision. Every value is checked: the file may be damaged or from another version.
// Throws Error(kData), beginning with `where`.
class DecisionReader {
 public:
  using Json = nlohmann::ordered_json;

  DecisionReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) throw Error(ErrorKind::kData, where_ + ": memory must be an object");
  }

  [[nodiscard]] const Json& object(const char* name) const {
    return at(name, &Json::is_object, "an object");
  }
  [[nodiscard]] int64_t count(const char* name, int64_t least = 1) const {
    const Json& value = at(name, &Json::is_number_integer, "a whole number");
    if (value.get<double>() > 0x1p62 || value.get<int64_t>() < least) {
      refuse(name, "a whole number of at least " + std::to_string(least));
    }
    return value.get<int64_t>();
  }
  [[nodiscard]] bool flag(const char* name) const {
    return at(name, &Json::is_boolean, "true or false").get<bool>();
  }
  [[nodiscard]] double number(const char* name) const {
    return at(name, &Json::is_number, "a number").get<double>();
  }
  [[nodiscard]] std::string text(const char* name) const {
    return at(name, &Json::is_string, "a text").get<std::string>();
  }
  [[nodiscard]] bool has(const char* name) const { return json_.contains(name); }
  // A value of the type of `fallback`.
  [[nodiscard]] OptimizerValue value_like(const OptimizerValue& fallback, const char* name) const {
    if (std::holds_alternative<bool>(fallback)) return flag(name);
    if (std::holds_alternative<int64_t>(fallback)) return count(name, 0);
    return number(name);
  }
  [[noreturn]] void refuse(const char* name, const std::string& expected) const {
    throw Error(ErrorKind::kData,
                where_ + ": '" + std::string(name) + "' of memory must be " + expected);
  }

 private:
  [[nodiscard]] const Json& at(const char* name, bool (Json::*is)() const noexcept,
                               const char* expected) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !((*found).*is)()) refuse(name, expected);
    return *found;
  }

  const Json& json_;
  std::string where_;
};

}  // namespace finetune
