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

// The part of each optimizer's descriptor that needs no torch: name and keys. Arithmetic and state
// are in OptimizerKind (optim/optimizer_kind.h).
namespace finetune {

// Values of optim_args by key.
using OptimizerValue = std::variant<bool, int64_t, double>;
using OptimizerArguments = std::map<std::string, OptimizerValue, std::less<>>;

// A key of optim_args. Its values have the type of the default; an integer is at least 0, a
// floating-point number is in [0, 1).
struct OptimizerArgument {
  std::string name;
  OptimizerValue fallback;
};

struct OptimizerNames {
  std::string name = {};                          // in files and messages
  std::vector<std::string> spellings = {};        // values of `optim`: transformers' names
  std::string label = {};                         // for messages; empty: the name
  std::vector<OptimizerArgument> arguments = {};  // keys of optim_args
  // Checks the combination of values that are each valid: returns the problem ("needs 'x' above 0
  // where ...") or an empty string. Receives all arguments. nullptr: any combination is valid.
  std::string (*problem)(const OptimizerArguments& values) = nullptr;
};

// The optimizers of config/optimizers.def, followed by those added with add_optimizer_names().
[[nodiscard]] const std::deque<OptimizerNames>& optimizer_names();
// Look up by name, or by a value of `optim`; nullptr if unknown.
[[nodiscard]] const OptimizerNames* find_optimizer_names(std::string_view name);
[[nodiscard]] const OptimizerNames* find_optimizer_of(std::string_view spelling);

// Registers an optimizer that is not in optimizers.def (for tests). Requires: a new name; no
// configuration has been loaded yet.
void add_optimizer_names(OptimizerNames names);

}  // namespace finetune
