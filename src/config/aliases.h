// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/node.h"
#include "config/problems.h"

namespace finetune {

// A name that is not a key (any more) but that users' files hold: transformers 4.x, or a script
// other than run_mlm. An alias of one task is an unknown key in the others (other_names.h).
struct Alias {
  enum class Action {
    kRename,       // the same value under the key `target`
    kOtherName,    // the same, where the name belongs to another script
    kIgnore,       // no effect; one line says why, unless the value is false or null
    kWarmupRatio,  // warmup_ratio: a share of all steps
    kFlag,         // true sets `target` to `argument`; false changes nothing
    kMustBeTrue,   // an error unless true
    kRefuse,       // an error that says what to write instead
  };

  std::string_view name;
  Action action = Action::kRename;
  std::string_view target{};
  std::string_view argument{};  // kFlag: the value; kIgnore, kMustBeTrue, kRefuse: a reason
  std::string_view task{};      // the only task that has it; empty: all
};

[[nodiscard]] const std::vector<Alias>& all_aliases();
[[nodiscard]] const Alias* find_alias(std::string_view name);

// The key that a renamed one stands for; otherwise the name itself.
[[nodiscard]] std::string_view resolve_name(std::string_view name);

// Replaces an alias by its key; nullopt if it has no effect. Adds a note or problem.
[[nodiscard]] std::optional<Setting> apply_alias(const Alias& alias, const Setting& setting,
                                                 std::vector<std::string>& notes,
                                                 Problems& problems);

}  // namespace finetune
