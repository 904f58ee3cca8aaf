// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "cli/process/commands.h"

namespace finetune::cli {

// Returns the output of `finetune COMMAND [words...] --help`.
[[nodiscard]] std::string help_of(const Command& command, Arguments words);

// Returns the manual page in man(7) macros, generated from the help of all commands and the list of
// keys.
[[nodiscard]] std::string manual_page();

}  // namespace finetune::cli
