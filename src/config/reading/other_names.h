// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// The name of a key in other trainers, or of a feature without counterpart. It is rejected, because
// its values may have another meaning; the error suggests the key to use.
struct OtherName {
  std::string_view name;
  std::vector<std::string_view> keys = {};  // counterparts here; empty: none
  std::string_view reason = {};             // why there is none, or advice on the keys
};

// Common names: flags of Google's BERT and BigBird, Axolotl, LLaMA-Factory and others.
[[nodiscard]] const std::vector<OtherName>& all_other_names();

// Returns the text after "unknown key 'name'" in an error: " (did you mean 'learning_rate'?)" or ":
// a TPU of this machine is used where there is one"; empty if the name is not in the list.
[[nodiscard]] std::string explain_other_name(std::string_view name);

// Returns the value of a member of an enumeration as Python prints it: "OptimizerNames.ADAMW_BNB"
// is "adamw_bnb_8bit", "<IntervalStrategy.STEPS: 'steps'>" is "steps"; nullopt for other text.
[[nodiscard]] std::optional<std::string> value_of_enum(std::string_view text);

// Returns the text after "must be one of ..., not 'value'": " (did you mean 'clm'?)" or "; <why>";
// empty if nothing is similar. `usable`: the values that the key takes.
[[nodiscard]] std::string explain_other_value(std::string_view key, std::string_view value,
                                              const std::vector<std::string>& usable);

}  // namespace finetune
