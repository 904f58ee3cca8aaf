// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "config/reading/problems.h"
#include "config/reading/values.h"
#include "config/rules/derive.h"
#include "finetune/config/dump.h"

namespace finetune {

using Json = nlohmann::ordered_json;

Json to_json(const TrainingArgs& args) {
  Json all = Json::object();
  for (const Field& field : all_fields()) {
    Json value = value_of(field, args);
    if (field.spec.secret && !value.is_null()) {
      std::string shown = "<";
      for (const char c : field.name) {
        shown += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      }
      value = shown + '>';
    }
    all[field.name] = std::move(value);
  }
  return all;
}

namespace {

// Converts the text that earlier versions stored for a key that now takes a list.
Json as_list(const Json& value) {
  if (value.is_array()) return value;
  return value.is_null() ? Json::array() : Json::array({value});
}

// Whether the key always has a value.
bool has_value(const Field& field) {
  return holds<bool>(field) || holds<std::string>(field) ||
         std::holds_alternative<int64_t TrainingArgs::*>(field.member) ||
         std::holds_alternative<double TrainingArgs::*>(field.member);
}

// Returns a key's value in stored arguments; the default where an earlier version did not know the
// key, or stored null for what always has a value now.
const Json& stored_value(const Json& args, const Field& field, const Json& defaults) {
  const auto found = args.find(field.name);
  const bool is_stored = found != args.end() && !(found->is_null() && has_value(field));
  return is_stored ? *found : defaults.at(field.name);
}

bool are_equal(const Field& field, const Json& before, const Json& after) {
  if (!field.spec.decided.empty() && after == field.spec.decided) return true;
  // An earlier version stored true or false for a key that has more choices now.
  if (holds<std::string>(field) && before.is_boolean()) return plain_text(before) == after;
  if (!holds<std::vector<std::string>>(field)) return before == after;
  return as_list(before) == as_list(after);
}

}  // namespace

std::vector<KeyChange> changed_keys(const Json& old_args, const Json& new_args) {
  static const Json defaults = [] {
    LoadedConfig config;
    Problems ignored;  // a missing HOME matters when a configuration is loaded, not here
    derive(config, ignored);
    return to_json(config.args);
  }();
  std::vector<KeyChange> changes;
  for (const Field& field : all_fields()) {
    const Json& before = stored_value(old_args, field, defaults);
    const Json& after = stored_value(new_args, field, defaults);
    if (are_equal(field, before, after)) continue;
    changes.push_back({.name = field.name,
                       .old_text = plain_text(before),
                       .new_text = plain_text(after),
                       .policy = field.spec.resume,
                       .is_path = field.spec.path != PathKind::kNone});
  }
  return changes;
}

}  // namespace finetune
