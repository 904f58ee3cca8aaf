// SPDX-License-Identifier: MIT
#include "task/sft/generated_samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "task/generate/generator.h"

namespace finetune {

GeneratedSamples::GeneratedSamples(const std::vector<std::string>& files, const RowOptions& rows,
                                   const chat::ConversationNames& names,
                                   const chat::ChatRenderer& renderer, const Tokenizer& tokenizer,
                                   const ModelConfig& model, int64_t count)
    : tokenizer_(tokenizer) {
  visit_rows(files, rows, [&](const DataRow& row) {
    try {
      ChatPrompt prompt =
          make_chat_prompt(chat::read_conversation(row.columns, names), renderer, tokenizer);
      if (std::ssize(prompt.ids) < model.max_length()) prompts_.push_back(std::move(prompt));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;  // a row that asks nothing
    }
    return std::ssize(prompts_) < count;
  });
}

std::vector<nlohmann::ordered_json> GeneratedSamples::answer(
    Model& model, c10::Device device, const std::vector<int64_t>& end_ids) const {
  Generator generator(model, device, {.eos_token_ids = end_ids}, 0);
  std::vector<nlohmann::ordered_json> answers;
  for (const ChatPrompt& prompt : prompts_) {
    const std::vector<int32_t> ids = generator.complete(prompt.ids, answers.size());
    nlohmann::ordered_json answer =
        prompt.answered(tokenizer_.decode(ids, /*skip_special_tokens=*/true));
    answer["finish_reason"] =
        !ids.empty() && std::ranges::count(end_ids, int64_t{ids.back()}) > 0 ? "stop" : "length";
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace finetune
