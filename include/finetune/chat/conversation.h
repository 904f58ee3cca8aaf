// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/chat/value.h"

namespace finetune::chat {

// A message as templates read it, and whether the model learns it.
struct Message {
  std::string role;
  Value fields;        // a dict; text in it has the message's index and a kField as source
  bool learns = true;  // false: the row says "train": false or "weight": 0
  std::optional<std::string> reasoning;  // reasoning_content, under any of its names
  bool has_tool_calls = false;
  bool has_think_tag = false;  // the content contains "</think>"
};

// Source::field of a message's text.
enum MessageField : int32_t {
  kRoleField,
  kContentField,
  kReasoningField,
  kToolCallsField,
  kOtherField
};

// One row of chat data, in one of five shapes.
struct Conversation {
  std::vector<Message> messages;  // empty: plain text
  Value tools = None{};           // a list, or None
  // Prompt and completion: index of the completion's first message.
  std::optional<size_t> completion;
  // Plain text: of a prompt and its completion, or (prompt unset) of a row that is learned whole.
  std::optional<std::string> prompt;
  std::string text;
  std::vector<std::pair<std::string, Value>> template_kwargs = {};  // of the row
};

// Names of columns and roles in rows of LLaMA-Factory's "sharegpt" and "alpaca", for which its
// dataset_info.json may have others.
struct ConversationNames {
  std::string messages = "conversations", system = "system", tools = "tools";
  std::string role = "from", content = "value";
  std::string user = "human", assistant = "gpt", observation = "observation",
              function = "function_call", system_role = "system";
  std::string prompt = "instruction", query = "input", response = "output", history = "history";
  bool operator==(const ConversationNames&) const = default;
};

// Returns the names that LLaMA-Factory's dataset_info.json in the folder of `path` has for that
// file; the usual ones without such an entry. Throws Error(kData) for a damaged entry.
[[nodiscard]] ConversationNames names_in_dataset_info(const std::string& path);

// Whether an answer that is learned has no text, reasoning or tool call, so that a model learns to
// end it at once.
[[nodiscard]] bool has_empty_answer(const Conversation& conversation);

// Converts a row (an object). The first of these that the row has decides:
//   messages: [{role, content, ...}], with tools         OpenAI, TRL
//   conversations: [{from, value}], with system, tools   ShareGPT, LLaMA-Factory
//   prompt, completion: text or messages                 TRL
//   instruction, output, with input, system, history     Alpaca
//   text                                                 plain
// Throws Error(kData) without the row's position for a row that is none of these or is malformed.
[[nodiscard]] Conversation read_conversation(const nlohmann::ordered_json& row,
                                             const ConversationNames& names = {});

// Returns what an Alpaca row asks, as messages (role, content): system, history, and instruction
// with input. Throws Error(kData) as read_conversation does.
[[nodiscard]] nlohmann::ordered_json alpaca_question(const nlohmann::ordered_json& row,
                                                     const ConversationNames& names = {});

// Returns the columns that such a row is read from, or empty text if the row has no such shape.
[[nodiscard]] std::string conversation_columns(const nlohmann::ordered_json& row,
                                               const ConversationNames& names = {});

}  // namespace finetune::chat
