// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "chat/syntax.h"
#include "finetune/chat/chat_template.h"

namespace finetune::chat {

// Renders a template once. Throws Error(kData) with a position of the template `where`.
[[nodiscard]] TracedText interpret(const Syntax& syntax, const std::string& where,
                                   const Variables& variables);

}  // namespace finetune::chat
