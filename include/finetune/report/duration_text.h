// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// Formats seconds for people: "5.6 ms", "2.4 s", "3 min", "2.4 h", "1 d 4 h"; "?" if they are
// non-finite or negative.
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace finetune
