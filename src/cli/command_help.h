// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "cli/commands.h"

namespace finetune::cli {

// What `finetune COMMAND [words...] --help` prints.
[[nodiscard]] std::string help_of(const Command& command, Arguments words);

// The manual page in man(7) macros, made from the help of all commands and the list of keys.
[[nodiscard]] std::string manual_page();

}  // namespace finetune::cli
