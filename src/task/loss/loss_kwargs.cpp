// SPDX-License-Identifier: MIT
#include "task/loss/loss_kwargs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"

namespace finetune {

void read_loss_kwargs(
    const std::string& text, std::string_view loss, const std::vector<std::string_view>& known,
    const std::function<void(const std::string& name, const nlohmann::ordered_json& value)>& set) {
  if (text.empty()) return;
  const std::vector<std::string> names(known.begin(), known.end());
  const nlohmann::ordered_json given = parse_json(text, "loss_kwargs");
  for (const auto& [name, value] : given.items()) {
    if (std::ranges::find(names, name) == names.end()) {
      throw Error(ErrorKind::kConfig,
                  "'" + name + "' is no argument of " + std::string(loss) +
                      did_you_mean(name, names) +
                      (names.empty() ? "; it has none" : "; it has " + join(names)));
    }
    set(name, value);
  }
}

double positive_number(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_number() && value.get<double>() > 0) return value.get<double>();
  throw Error(ErrorKind::kConfig, name + " is a number above 0");
}

int64_t whole_number(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() <= 1U << 20) return value.get<int64_t>();
  throw Error(ErrorKind::kConfig, name + " is a whole number from 0 to 1048576");
}

double number_value(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_number()) return value.get<double>();
  throw Error(ErrorKind::kConfig, name + " is a number");
}

bool truth_value(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>();
  throw Error(ErrorKind::kConfig, name + " is true or false");
}

std::string text_value(const std::string& name, const nlohmann::ordered_json& value) {
  if (value.is_string() && !value.get<std::string>().empty()) return value.get<std::string>();
  throw Error(ErrorKind::kConfig, name + " is a text");
}

std::string one_of(const std::string& name, const nlohmann::ordered_json& value,
                   const std::vector<std::string>& choices) {
  if (value.is_string() && std::ranges::find(choices, value.get<std::string>()) != choices.end()) {
    return value.get<std::string>();
  }
  throw Error(ErrorKind::kConfig, name + " is one of " + join(choices));
}

}  // namespace finetune
