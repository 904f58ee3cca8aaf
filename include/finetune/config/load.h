// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// What a configuration file and the command line say together.
struct LoadedConfig {
  TrainingArgs args;
  std::string path;                            // of the file; empty where there is none
  std::map<std::string, std::string> origins;  // key -> "file:line" or "command line"
  std::vector<std::string> notes;              // one sentence each, to be shown as warnings

  // Where the key was set; the file's name (or "configuration") where it was not.
  [[nodiscard]] std::string where(std::string_view key) const;
  [[nodiscard]] bool is_set(std::string_view key) const;
};

// Throws Error(kConfig): "run.yaml:12: output_dir: <why>".
[[noreturn]] void refuse_key(const LoadedConfig& config, std::string_view key,
                             const std::string& why);

// Reads a configuration: defaults < file < overrides. `path` names a YAML file, or a JSON one where
// it ends in .json; it may be empty when everything is given by overrides. `overrides` are command
// line words: "--key value", "--key=value", "--flag", several values where the key takes a list;
// "-" and "_" are the same in a key.
//
// Paths are resolved (relative to the file's folder, or to the current one for overrides), old
// names are replaced, and what follows from other keys is filled in: eval_steps, do_eval,
// metric_for_best_model, greater_is_better, gradient_accumulation_steps (from
// effective_batch_size). Cross-field rules are validate's.
//
// Throws Error(kConfig) whose message holds every fault that was found, one per line:
// "run.yaml:12: unknown key 'save_step' (did you mean 'save_steps'?)".
[[nodiscard]] LoadedConfig load_config(const std::string& path,
                                       const std::vector<std::string>& overrides);

// The same for the text of a file; `name` stands for its path in messages, for relative paths and
// for its ending.
[[nodiscard]] LoadedConfig load_config_text(std::string_view text, const std::string& name,
                                            const std::vector<std::string>& overrides);

// The words of a command that takes a configuration: its file, which may stand anywhere among the
// keys, and the keys.
struct ConfigWords {
  std::string path;  // empty: everything is given by keys
  std::vector<std::string> overrides;
};

// Finds the file: the first word that is neither an option nor the value of one. A flag takes the
// next word only where that is a value of a flag ("--do_train run.yaml"), and of a list's values
// the last one is the file where it ends in .yaml or .yml and no other word is the file. A second
// such word stays among the overrides, where load_config refuses it.
[[nodiscard]] ConfigWords split_config_words(const std::vector<std::string>& words);

// The key that a misspelt one was probably meant to be; empty where none is near.
[[nodiscard]] std::string nearest_key(std::string_view name);

}  // namespace finetune
