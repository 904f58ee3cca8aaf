// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/chat/chat_renderer.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

// Returns the options of rendering for a tokenizer: its special tokens as variables (bos_token,
// ...) and as text, and `kwargs`, an object of JSON or empty, which messages call `key`. Throws
// Error(kConfig) for kwargs that are no object or have a name that every rendering sets.
[[nodiscard]] chat::RenderOptions chat_render_options(const Tokenizer& tokenizer,
                                                      const std::string& kwargs,
                                                      const std::string& key);

// Returns the day in UTC that templates see, "2026-07-05"; SOURCE_DATE_EPOCH, as for reproducible
// builds, replaces the clock.
[[nodiscard]] std::string chat_date_today();
// Returns midnight of such a day.
[[nodiscard]] std::tm parse_chat_date(const std::string& date);

// What a model is asked to answer: a row without its last answer.
struct ChatPrompt {
  std::vector<int32_t> ids;
  chat::Conversation conversation;  // without the answer

  // Returns {"messages"} with the answer as the last one, or {"prompt", "completion"} of plain
  // text.
  [[nodiscard]] nlohmann::ordered_json answered(const std::string& answer) const;
};
// Throws Error(kData), without the row's position, for a row that asks nothing.
[[nodiscard]] ChatPrompt make_chat_prompt(chat::Conversation conversation,
                                          const chat::ChatRenderer& renderer,
                                          const Tokenizer& tokenizer);

}  // namespace finetune
