// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// The name of `known` that `name` was probably meant to be: the one with the fewest edits, at most
// two or a quarter of its length; empty where none is near.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string>& known);

// " (did you mean 'x'?)", or nothing where no name is near.
[[nodiscard]] std::string did_you_mean(std::string_view name,
                                       const std::vector<std::string>& known);

}  // namespace finetune
