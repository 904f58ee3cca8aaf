// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/config/load.h"

namespace finetune {

// One side of an exclusion: a key with the values that are meant.
struct ExclusionSide {
  std::string text;               // "max_grad_norm above 0"
  std::vector<std::string> keys;  // those that bring it about, the first is the one to name
  bool (*holds)(const TrainingArgs& args);
};

// Two techniques that cannot be combined. Everything that is not in the table can be.
struct Exclusion {
  ExclusionSide first, second;
  std::string reason;  // why not; reads on after ": "
  std::string advice;  // what to do; reads on after "; "
};

// The table that validate(), `finetune config exclusions` and the README are made from.
[[nodiscard]] const std::vector<Exclusion>& all_exclusions();

// The table in Markdown.
[[nodiscard]] std::string describe_exclusions_markdown();

}  // namespace finetune
