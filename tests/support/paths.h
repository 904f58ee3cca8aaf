// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// The checkout that the tests were built from, and the binary that belongs to them. Functions, so
// that no other object depends on where the checkout is and a compiler cache serves all of them.
[[nodiscard]] std::string source_dir();
[[nodiscard]] std::string binary_path();

}  // namespace finetune
