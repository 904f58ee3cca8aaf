// SPDX-License-Identifier: MIT
#include "config/reading/values.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

Json number_json(const Field& field, double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  if (field.spec.steps && whole) return static_cast<int64_t>(value);
  return value;
}

Json json_of(const Field& field, const JsonText& value) {
  return value.empty() ? Json() : parse_json(value.text, field.name);
}
Json json_of(const Field& field, double value) { return number_json(field, value); }
template <class T>
Json json_of(const Field&, const T& value) {
  return value;
}
template <class T>
Json json_of(const Field& field, const std::optional<T>& value) {
  return value ? json_of(field, *value) : Json();
}

}  // namespace

Json value_of(const Field& field, const TrainingArgs& args) {
  const auto of_foreign = [&](const ForeignKey& key) {
    const auto set = args.foreign.find(field.name);
    return std::visit([&](const auto& value) { return json_of(field, value); },
                      set != args.foreign.end() ? set->second : key.initial);
  };
  return std::visit(
      [&](const auto& member) {
        if constexpr (std::is_same_v<std::decay_t<decltype(member)>, ForeignKey>) {
          return of_foreign(member);
        } else {
          return json_of(field, args.*member);
        }
      },
      field.member);
}

std::string plain_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return format_double(value.get<double>());
  return value.dump();
}

std::vector<std::string> usable_values(const Field& field) {
  std::vector<std::string> usable = field.spec.available;
  const Json initial = value_of(field, TrainingArgs{});
  if (initial.is_string()) usable.insert(usable.begin(), initial.get<std::string>());
  return usable;
}

}  // namespace finetune
