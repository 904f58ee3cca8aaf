// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/config/load.h"

namespace finetune {

// Collects faults, so that users see all of them at once; limited to the first ones.
class Problems {
 public:
  void add(const std::string& where, const std::string& message) {
    add_line(where + ": " + message);
  }

  void add_line(const std::string& line) {
    if (is_full()) {
      ++left_out_;
    } else {
      lines_.push_back(line);
    }
  }

  // Whether further faults would only be counted.
  [[nodiscard]] bool is_full() const { return lines_.size() >= kShown; }
  [[nodiscard]] bool empty() const { return lines_.empty(); }

  void throw_if_any() const {
    if (lines_.empty()) return;
    std::string message = lines_.front();
    for (size_t i = 1; i < lines_.size(); ++i) message += '\n' + lines_[i];
    if (left_out_ > 0) message += format_text("\nand {} more", left_out_);
    throw Error(ErrorKind::kConfig, message);
  }

 private:
  static constexpr size_t kShown = 50;

  std::vector<std::string> lines_;
  size_t left_out_ = 0;
};

// Adds a problem for every violated exclusion, with both keys and where they were set.
void check_exclusions(const LoadedConfig& config, Problems& problems);

// Adds problems for keys of adapters: those without use_peft, and contradictions. `trains`: whether
// the command trains.
void check_adapters(const LoadedConfig& config, bool trains, Problems& problems);

// Adds problems for session limits and the commands at its end: contradictions, and invalid times,
// machines or programs.
void check_session(const LoadedConfig& config, Problems& problems);

// Adds a problem for every invalid part of activation_checkpointing_kwargs, optim_args and
// memory_budget, and a note for what has no effect. Requires: old names of keys have been resolved.
void check_techniques(LoadedConfig& config, Problems& problems);

}  // namespace finetune
