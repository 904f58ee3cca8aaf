// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/key_locations.h"
#include "finetune/config/training_args.h"

namespace finetune {

// The merged configuration of a file and the command line.
struct LoadedConfig : KeyLocations {
  TrainingArgs args = {};
  std::vector<std::string> notes = {};  // sentences to be printed as warnings
};

// Reads a configuration: defaults < file < overrides. `path` names a YAML file, or a JSON file if
// it ends in .json; empty if all keys are overrides. `overrides` are command-line words: "--key
// value", "--key=value", "--flag", several values if the key takes a list; "-" and "_" in a key are
// equivalent.
//
// Resolves paths (relative to the file's folder, or for overrides to the current folder), replaces
// old names, and derives keys from others: eval_steps, do_eval, metric_for_best_model,
// greater_is_better, gradient_accumulation_steps (from effective_batch_size). Rules that involve
// several keys are checked by validate().
//
// Throws Error(kConfig) listing every fault, one per line: "run.yaml:12: unknown key 'save_step'
// (did you mean 'save_steps'?)".
[[nodiscard]] LoadedConfig load_config(const std::string& path,
                                       const std::vector<std::string>& overrides);

// The same for a file's text; `name` replaces its path in messages, for relative paths and for the
// ending.
[[nodiscard]] LoadedConfig load_config_text(std::string_view text, const std::string& name,
                                            const std::vector<std::string>& overrides);

// The words of a command that takes a configuration: the file, which may be anywhere among the
// keys, and the keys.
struct ConfigWords {
  std::string path;  // empty: there are only keys
  std::vector<std::string> overrides;
};

// Finds the file: the first word that is neither an option nor an option's value. A flag takes the
// next word as its value only if it is a valid one ("--do_train run.yaml"). The last value of a
// list is the file if it ends in .yaml or .yml and no other word is the file. A second such word
// stays among the overrides, where load_config rejects it.
[[nodiscard]] ConfigWords split_config_words(const std::vector<std::string>& words);

// Returns the key that a misspelt one probably means; empty if none is similar.
[[nodiscard]] std::string nearest_key(std::string_view name);

}  // namespace finetune
