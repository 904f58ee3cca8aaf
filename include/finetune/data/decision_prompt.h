// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "finetune/chat/chat_template.h"
#include "finetune/data/decision_questions.h"
#include "finetune/tokenizer/tokenizer.h"

namespace finetune {

struct DecisionPromptOptions {
  // decision_template.jinja, which reads `state` and `question` (a prompt for each question) or
  // `questions` (one for all); null: transformers' generic prompt as the user's message in
  // `chat_template`.
  std::shared_ptr<const chat::ChatTemplate> decision_template = {};
  std::shared_ptr<const chat::ChatTemplate> chat_template = {};
  std::vector<std::pair<std::string, chat::Value>> variables = {};  // bos_token, ...
  std::tm date = {};
  bool sanitize_control_tokens = true;
};

// One or several questions as the model reads them.
struct DecisionPrompt {
  std::vector<int32_t> ids;
  // The number of tokens before each `<|mark|>`, where the head reads: marks[i] - 1 is the position
  // of question i. Without marks the end.
  std::vector<int64_t> marks;
};

// Renders and tokenises requests as transformers' decision.prepare_inputs() does. Immutable, so
// safe to share between threads.
class DecisionPrompter {
 public:
  // `tokenizer` must outlive the prompter. Throws Error(kConfig) without any template.
  DecisionPrompter(const Tokenizer& tokenizer, DecisionPromptOptions options);

  [[nodiscard]] bool asks_together() const { return asks_together_; }
  // Requires: one question, unless asks_together(). Throws Error(kData), without the row's
  // position, if the template refuses the request or marks another number of positions.
  [[nodiscard]] DecisionPrompt prompt(const nlohmann::ordered_json& state,
                                      std::span<const DecisionQuestion> questions) const;

  // The id of a label, which is one token. Throws Error(kData).
  [[nodiscard]] int32_t label_id(const std::string& label) const;
  // Throws Error(kData) unless the labels are different tokens.
  void check_labels(const DecisionQuestion& question) const;

 private:
  [[nodiscard]] chat::TracedText render(const nlohmann::ordered_json& state,
                                        std::span<const DecisionQuestion> questions) const;
  [[nodiscard]] DecisionPrompt encode(const chat::TracedText& text) const;
  void append(const std::string& piece, bool is_text, DecisionPrompt& prompt, bool is_first) const;
  [[nodiscard]] const std::string* control_token_at(const std::string& text, size_t at,
                                                    size_t end) const;

  const Tokenizer& tokenizer_;
  DecisionPromptOptions options_;
  bool asks_together_ = false;
  std::vector<std::string> control_tokens_;    // the longest first
  std::array<bool, 256> starts_control_ = {};  // whether one begins with this byte
  std::vector<int32_t> newline_;
};

}  // namespace finetune
