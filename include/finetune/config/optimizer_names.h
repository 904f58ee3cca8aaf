// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The half of each optimizer's descriptor that needs no torch: its names and keys. The other half,
// arithmetic and state, is OptimizerKind (optim/optimizer_kind.h).
namespace finetune {

// Keys of optim_args with their values.
using OptimizerValue = std::variant<bool, int64_t, double>;
using OptimizerArguments = std::map<std::string, OptimizerValue, std::less<>>;

// A key of optim_args. The type of its values is that of the default; an integer is at least 0, a
// floating-point number is in [0, 1).
struct OptimizerArgument {
  std::string name;
  OptimizerValue fallback;
};

struct OptimizerNames {
  std::string name = {};                          // in files and messages
  std::vector<std::string> spellings = {};        // values of `optim`; transformers' names
  std::string label = {};                         // for sentences; empty: the name
  std::vector<OptimizerArgument> arguments = {};  // keys of optim_args
  // What is wrong with values that are each valid ("needs 'x' above 0 where ..."); empty: nothing.
  // Gets all arguments. nullptr: any combination is fine.
  std::string (*problem)(const OptimizerArguments& values) = nullptr;
};

// Those of config/optimizers.def, then those added.
[[nodiscard]] const std::deque<OptimizerNames>& optimizer_names();
// By name, or by a value of `optim`; nullptr: unknown.
[[nodiscard]] const OptimizerNames* find_optimizer_names(std::string_view name);
[[nodiscard]] const OptimizerNames* find_optimizer_of(std::string_view spelling);

// Adds an optimizer that is not in optimizers.def (tests). Requires: a new name; no configuration
// has been loaded yet.
void add_optimizer_names(OptimizerNames names);

}  // namespace finetune
