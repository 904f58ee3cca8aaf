// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

// Every hidden_act that find_activation() knows, for sources that see no torch.
[[nodiscard]] std::vector<std::string> activation_names();

}  // namespace finetune
