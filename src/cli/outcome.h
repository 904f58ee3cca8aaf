// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

namespace finetune::cli {

// Does the work and returns its exit code. What it throws becomes a message on standard error and
// the exit code that the contract has for it.
[[nodiscard]] int exit_code_of(const std::function<int()>& work);

}  // namespace finetune::cli
