// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

// Returns every hidden_act that find_activation() knows. For sources without torch.
[[nodiscard]] std::vector<std::string> activation_names();

}  // namespace finetune
