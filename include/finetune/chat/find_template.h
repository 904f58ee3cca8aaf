// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/chat/chat_template.h"

namespace finetune::chat {

// Names of the templates that are compiled in: chatml, llama3, mistral, gemma, phi3, alpaca.
[[nodiscard]] std::vector<std::string> shipped_template_names();

// Returns the chat template that `path` names: a shipped one, a file, or a folder with
// chat_template.jinja or a chat_template in tokenizer_config.json (of several, the one called
// "default", and "tool_use" for conversations with tools). Unset: the one in `tokenizer_folder`, or
// null if that has none. `key` is what messages call the path. Throws Error(kConfig) if nothing is
// there, Error(kData) if the template is not valid.
[[nodiscard]] std::shared_ptr<const ChatTemplate> find_chat_template(
    const std::string& tokenizer_folder, const std::optional<std::string>& path,
    const std::string& key);

}  // namespace finetune::chat
