// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// A number as a message shows it: 4 significant digits. Files keep all of them.
[[nodiscard]] std::string figure_text(double value);

}  // namespace finetune
