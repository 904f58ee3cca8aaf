// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Formats a number for messages with 4 significant digits; files keep all digits.
[[nodiscard]] std::string figure_text(double value);

// Rounds to six digits: enough for a display, and short in a file.
[[nodiscard]] double rounded_figure(double value);

}  // namespace finetune
