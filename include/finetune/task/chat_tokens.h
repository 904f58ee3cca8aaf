// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/chat/chat_renderer.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Returns the options of rendering for a tokenizer: its special tokens as variables (bos_token,
// ...) and as text, and `kwargs`, an object of JSON or empty, which messages call `key`. Throws
// Error(kConfig) for kwargs that are no object or have a name that every rendering sets.
[[nodiscard]] chat::RenderOptions chat_render_options(const Tokenizer& tokenizer,
                                                      const std::string& kwargs,
                                                      const std::string& key);

}  // namespace finetune
