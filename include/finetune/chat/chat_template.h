// SPDX-License-Identifier: MIT
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "finetune/chat/traced_text.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

struct Syntax;

// The variables of one rendering, and the date that strftime_now() formats.
struct Variables {
  std::vector<std::pair<std::string, Value>> values;
  std::tm date = {};
};

// A Jinja template of a chat model, rendered as transformers' apply_chat_template does: the part of
// jinja2 that chat templates use, with trim_blocks, lstrip_blocks, loop controls, {% generation %},
// tojson without HTML escapes, raise_exception() and strftime_now(). Nothing outside is reachable;
// steps, depth and sizes are limited, since templates are untrusted.
//
// Immutable after construction, so safe to share between threads.
class ChatTemplate {
 public:
  // `where` (a path) begins all messages. Throws Error(kData) "WHERE:LINE:COLUMN: PROBLEM".
  // `for_tools`: what renders conversations with tools in its place; null: nothing does.
  ChatTemplate(std::string text, std::string where,
               std::shared_ptr<const ChatTemplate> for_tools = nullptr);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Throws Error(kData) with the position in the template: what raise_exception() says, a limit,
  // or an operation that Python would refuse.
  [[nodiscard]] TracedText render(const Variables& variables) const;

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  // The template of conversations with tools, or this one.
  [[nodiscard]] const ChatTemplate& for_tools() const { return for_tools_ ? *for_tools_ : *this; }
  // One template that renders as both do; text() if there is one.
  [[nodiscard]] std::string joined_text() const;
  // Whether {% generation %} marks what a model learns.
  [[nodiscard]] bool has_generation() const;
  // Whether the template reads a variable or calls a function of this name.
  [[nodiscard]] bool uses(std::string_view name) const;

 private:
  std::string text_;
  std::string where_;
  std::unique_ptr<const Syntax> syntax_;
  std::shared_ptr<const ChatTemplate> for_tools_;
};

}  // namespace finetune::chat
