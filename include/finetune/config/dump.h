// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/fields.h"
#include "finetune/config/load.h"

namespace finetune {

// Everything below is generated from all_fields(), in its order.

// Returns every key with its default and meaning, as commented YAML that loads to the defaults.
[[nodiscard]] std::string defaults_yaml();

// Returns the JSON Schema (draft 2020-12) of a configuration, for editors.
[[nodiscard]] std::string json_schema();

// Returns the README's table of keys.
[[nodiscard]] std::string describe_keys_markdown();

// Returns the help for the command line: every --key with its meaning and default.
[[nodiscard]] std::string keys_help();

// Returns a commented configuration for a task that is usable once its files exist. Throws
// Error(kUsage) for an unknown task.
[[nodiscard]] std::string initial_yaml(std::string_view task);

// Returns every key with its value; secrets as "<TOKEN>". Equal arguments give equal text. Stored
// in checkpoints and compared by changed_keys().
[[nodiscard]] nlohmann::ordered_json to_json(const TrainingArgs& args);

// A key whose value differs between a checkpoint's configuration and the current one.
struct KeyChange {
  std::string name;
  std::string old_text;  // JSON without quotes around strings; "null" if unset
  std::string new_text;
  ResumePolicy policy = ResumePolicy::kFreeAnnounced;
  bool is_path = false;  // both paths may have the same content: compare that before refusing
};

// Compares two results of to_json(), in the order of the keys. A key that `old_args` lacks (written
// by an earlier version) counts as its default; unknown keys are ignored.
[[nodiscard]] std::vector<KeyChange> changed_keys(const nlohmann::ordered_json& old_args,
                                                  const nlohmann::ordered_json& new_args);

}  // namespace finetune
