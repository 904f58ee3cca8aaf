// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// A name that other trainers give to a key, or that has no counterpart here. It is not accepted,
// because its values may mean something else; the error names the key to use.
struct OtherName {
  std::string_view name;
  std::vector<std::string_view> keys = {};  // counterparts here; empty: none
  std::string_view reason = {};             // why there is none, or what to know about the keys
};

// Habits of the field, Google BERT's and BigBird's flags, Axolotl and LLaMA-Factory.
[[nodiscard]] const std::vector<OtherName>& all_other_names();

// What follows "unknown key 'name'" in an error: " (did you mean 'learning_rate'?)" or
// ": libtorch has no TPU device"; empty where the name is not in the list.
[[nodiscard]] std::string explain_other_name(std::string_view name);

}  // namespace finetune
