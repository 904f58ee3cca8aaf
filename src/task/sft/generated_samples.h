// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/chat/chat_renderer.h"
#include "finetune/data/rows.h"
#include "finetune/model/model.h"
#include "finetune/task/chat_tokens.h"

namespace finetune {

// Answers to the first questions of the validation data (generate_samples), so that one sees what
// the loss means.
class GeneratedSamples {
 public:
  // Reads at most `count` rows that ask something and leave room for an answer of the model.
  // `tokenizer` must outlive this.
  GeneratedSamples(const std::vector<std::string>& files, const RowOptions& rows,
                   const chat::ConversationNames& names, const chat::ChatRenderer& renderer,
                   const Tokenizer& tokenizer, const ModelConfig& model, int64_t count);

  [[nodiscard]] int64_t size() const { return std::ssize(prompts_); }

  // Returns each row with the model's most probable answer, which ends with one of `end_ids`. It
  // depends only on weights and prompt. Throws Interrupted.
  [[nodiscard]] std::vector<nlohmann::ordered_json> answer(
      Model& model, c10::Device device, const std::vector<int64_t>& end_ids) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<ChatPrompt> prompts_;
};

}  // namespace finetune
