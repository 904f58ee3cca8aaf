// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/model/model_config.h"

namespace finetune {

// A field of config.json and the variable that stores it. Families list their fields once
// (Architecture::fields); reading, overriding and writing use that list.
struct ConfigField {
  using Target =
      std::variant<int64_t*, double*, bool*, std::string*, std::optional<int64_t>*,
                   std::optional<double>*, std::optional<bool>*, std::optional<std::string>*,
                   std::vector<int64_t>*, std::vector<double>*, std::vector<std::string>*,
                   std::optional<NumberOrText>*, RopeByLayerType*, std::optional<PerLayerConfig>*>;
  const char* name;
  Target target;
  double low = 0.0, high = 0.0;  // of numbers, both included
  bool absent_as_null = false;   // written only where it has a value
  bool keeps_empty = false;      // of a list: [] instead of null
  bool is_old_name = false;      // read, and written under another name
  bool reads_share = true;       // partial_rotary_factor beside rope_parameters
  // rope_scaling, which knows no types of layers, is of all of them, not of full attention alone.
  bool scales_every_layer = false;
};
using ConfigFields = std::vector<ConfigField>;

// Returns `fields` followed by a family's own fields.
[[nodiscard]] ConfigFields with_fields(ConfigFields fields, const ConfigFields& own);
// Those that have none of `names`.
[[nodiscard]] ConfigFields without_fields(ConfigFields fields,
                                          const std::vector<std::string_view>& names);
// Splits each item at the separator and removes spaces: {"a | b"} -> {"a", "b"}.
[[nodiscard]] std::vector<std::string> split_items(const std::vector<std::string>& items,
                                                   char separator);
// A field that is written only where it has a value.
[[nodiscard]] ConfigField optional_field(const char* name, ConfigField::Target target,
                                         double low = 0.0, double high = 0.0);

// A field that is read, and written under another name.
[[nodiscard]] ConfigField old_name(const char* name, ConfigField::Target target, double low = 0.0,
                                   double high = 0.0);

inline constexpr double kMostTokens = 4 << 20;
inline constexpr double kMostPositions = 1LL << 40;

// Sets the fields that `json` contains. Refuses values of another type or out of bounds with
// Error(kind), whose message starts with `where`. null keeps a plain value and resets an optional
// one.
void read_config_fields(const ConfigFields& fields, const nlohmann::ordered_json& json,
                        const std::string& where, ErrorKind kind);
[[nodiscard]] nlohmann::ordered_json written_field(const ConfigField& field);

}  // namespace finetune
