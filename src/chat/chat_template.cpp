// SPDX-License-Identifier: MIT
#include "finetune/chat/chat_template.h"

#include <algorithm>

#include "chat/interpreter.h"

namespace finetune::chat {

ChatTemplate::ChatTemplate(std::string text, std::string where)
    : text_(std::move(text)),
      where_(std::move(where)),
      syntax_(std::make_unique<const Syntax>(parse(text_, where_))) {}

ChatTemplate::~ChatTemplate() = default;

TracedText ChatTemplate::render(const Variables& variables) const {
  return interpret(*syntax_, where_, variables);
}

bool ChatTemplate::has_generation() const { return syntax_->has_generation; }

bool ChatTemplate::has_literal(std::string_view part) const {
  return syntax_->literals.find(part) != std::string::npos;
}

bool ChatTemplate::uses(std::string_view name) const {
  return std::ranges::find(syntax_->symbols, name) != syntax_->symbols.end();
}

}  // namespace finetune::chat
