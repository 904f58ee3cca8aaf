// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/fields.h"
#include "finetune/config/load.h"

namespace finetune {

// Everything below is generated from the one list of keys, in its order.

// Every key with its default and meaning, as commented YAML that loads to the defaults.
[[nodiscard]] std::string defaults_yaml();

// JSON Schema (draft 2020-12) of a configuration, for editors.
[[nodiscard]] std::string json_schema();

// The README's table of keys.
[[nodiscard]] std::string describe_keys_markdown();

// Help for the command line: every --key with its meaning and default.
[[nodiscard]] std::string keys_help();

// A commented configuration for a task that works as it is once its files are there. Throws
// Error(kUsage) for a task that is not available.
[[nodiscard]] std::string initial_yaml(std::string_view task);

// Every key with the value that is in force, as YAML; keys that were set say where.
[[nodiscard]] std::string dump_resolved(const LoadedConfig& config);

// Every key with its value; secrets as "<TOKEN>". Equal arguments give equal text. This is what
// checkpoints keep, and what changed_keys compares.
[[nodiscard]] nlohmann::ordered_json to_json(const TrainingArgs& args);

// A key whose value differs between a checkpoint's configuration and the present one.
struct KeyChange {
  std::string name;
  std::string old_text;  // JSON without quotes around strings; "null" where unset
  std::string new_text;
  ResumePolicy policy = ResumePolicy::kFreeAnnounced;
  bool is_path = false;  // both may name the same content: compare that before refusing
};

// Compares two results of to_json, in the order of the keys. A key that `old_args` lacks (written
// by an earlier version) counts as its default; one that is unknown here is left out.
[[nodiscard]] std::vector<KeyChange> changed_keys(const nlohmann::ordered_json& old_args,
                                                  const nlohmann::ordered_json& new_args);

}  // namespace finetune
