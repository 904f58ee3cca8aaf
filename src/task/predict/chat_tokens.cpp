// SPDX-License-Identifier: MIT
#include "finetune/task/chat_tokens.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/tokenizer/named_tokens.h"

namespace finetune {

chat::RenderOptions chat_render_options(const Tokenizer& tokenizer, const std::string& kwargs,
                                        const std::string& key) {
  chat::RenderOptions options;
  const SpecialTokens& special = tokenizer.special_tokens();
  for (const auto& [name, text] : named_tokens(special)) {
    options.variables.emplace_back(name, chat::Value(text));
  }
  if (special.eos) options.eos_token = special.eos->text;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_special(id)) options.special_tokens.push_back(tokenizer.id_to_token(id));
  }
  if (kwargs.empty()) return options;
  const nlohmann::ordered_json json = parse_json(kwargs, key, ErrorKind::kConfig);
  if (!json.is_object()) throw Error(ErrorKind::kConfig, key + " must be an object of JSON");
  for (const auto& [name, value] : json.items()) {
    for (const char* reserved : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (name != reserved) continue;
      throw Error(ErrorKind::kConfig, key + ": '" + name + "' is set by each row; leave it out");
    }
    options.variables.emplace_back(name, chat::Value::from_json(value));
  }
  return options;
}

std::string chat_date_today() {
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  const std::string_view text = epoch == nullptr ? "" : epoch;
  int64_t seconds = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_set =
      !text.empty() && parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return utc_time_text(is_set ? static_cast<double>(seconds) : unix_seconds(), "%Y-%m-%d");
}

std::tm parse_chat_date(const std::string& text) {
  std::tm date = {};
  if (std::sscanf(text.c_str(), "%d-%d-%d", &date.tm_year, &date.tm_mon, &date.tm_mday) == 3) {
    date.tm_year -= 1900;
    date.tm_mon -= 1;
    timegm(&date);  // sets the day of the week and of the year
  }
  return date;
}

nlohmann::ordered_json ChatPrompt::answered(const std::string& answer) const {
  using Json = nlohmann::ordered_json;
  if (conversation.messages.empty()) {
    return {{"prompt", *conversation.prompt}, {"completion", answer}};
  }
  Json messages = Json::array();
  for (const chat::Message& message : conversation.messages) {
    messages.push_back(Json::parse(chat::to_json(message.fields, {}).str()));
  }
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  return {{"messages", std::move(messages)}};
}

ChatPrompt make_chat_prompt(chat::Conversation conversation, const chat::ChatRenderer& renderer,
                            const Tokenizer& tokenizer) {
  ChatPrompt prompt{.ids = {}, .conversation = std::move(conversation)};
  std::vector<chat::Message>& messages = prompt.conversation.messages;
  if (messages.empty()) {
    if (!prompt.conversation.prompt) {
      throw Error(ErrorKind::kData, "has no messages; leave --chat out to continue plain text");
    }
    prompt.ids = tokenizer.add_special_tokens(tokenizer.encode(*prompt.conversation.prompt));
  } else {
    if (messages.back().role == "assistant") messages.pop_back();
    if (messages.empty()) {
      throw Error(ErrorKind::kData, "there is no question before the answer");
    }
    prompt.ids = tokenizer.encode(renderer.prompt_of(prompt.conversation));
  }
  if (prompt.ids.empty()) {
    throw Error(ErrorKind::kData, "the chat template makes an empty text of the conversation");
  }
  return prompt;
}

}  // namespace finetune
