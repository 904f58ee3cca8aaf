// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Returns the name of `known` that `name` probably means: the one with the fewest edits, at most
// two or a quarter of its length; empty if none is similar.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string>& known);

// Returns " (did you mean 'x'?)", or an empty string if no name is similar.
[[nodiscard]] std::string did_you_mean(std::string_view name,
                                       const std::vector<std::string>& known);

}  // namespace finetune
