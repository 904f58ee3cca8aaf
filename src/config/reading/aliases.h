// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/reading/node.h"
#include "config/reading/problems.h"

namespace finetune {

// A name in users' files that is not or no longer a key: from transformers 4.x, or from a script
// other than run_mlm. An alias of one task is an unknown key in the others (other_names.h).
struct Alias {
  enum class Action {
    kRename,       // the same value under the key `target`
    kOtherName,    // like kRename, for a name from another script
    kIgnore,       // no effect; a line states the reason, unless the value is false or null
    kWarmupRatio,  // warmup_ratio: a fraction of all steps
    kFlag,         // true sets `target` to `argument`; false changes nothing
    kMustBeTrue,   // an error unless true
    kRefuse,       // an error that states what to write instead
  };

  std::string_view name;
  Action action = Action::kRename;
  std::string_view target{};
  std::string_view argument{};  // kFlag: the value; kIgnore, kMustBeTrue, kRefuse: the reason
  std::string_view task{};      // the only task with this alias; empty: all
};

[[nodiscard]] const std::vector<Alias>& all_aliases();
[[nodiscard]] const Alias* find_alias(std::string_view name);

// Returns the current key of a renamed one, or the name itself.
[[nodiscard]] std::string_view resolve_name(std::string_view name);

// Replaces an alias by its key; nullopt if it has no effect. Adds a note or a problem.
[[nodiscard]] std::optional<Setting> apply_alias(const Alias& alias, const Setting& setting,
                                                 std::vector<std::string>& notes,
                                                 Problems& problems);

}  // namespace finetune
