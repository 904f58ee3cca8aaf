// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/config/load.h"

namespace finetune {

// One side of an exclusion: a key, and the values that are excluded.
struct ExclusionSide {
  std::string text;               // "max_grad_norm above 0"
  std::vector<std::string> keys;  // keys that have this effect; messages name the first
  bool (*holds)(const TrainingArgs& args);
};

// Two techniques that cannot be combined. All combinations that are not in the table are allowed.
struct Exclusion {
  ExclusionSide first, second;
  std::string reason;  // why not; continues a message after ": "
  std::string advice;  // what to do; continues a message after "; "
};

// The table from which validate(), `finetune config exclusions` and the README are generated.
[[nodiscard]] const std::vector<Exclusion>& all_exclusions();

// Returns the table in Markdown.
[[nodiscard]] std::string describe_exclusions_markdown();

}  // namespace finetune
