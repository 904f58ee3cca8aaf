// SPDX-License-Identifier: MIT
#include "finetune/data/preference_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/columns/json_row.h"
#include "data/columns/label_values.h"
#include "data/samples/sample_building.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = Row::Json;

constexpr const char* kMargin = "margin";

class PreferenceEncoder {
 public:
  PreferenceEncoder(const Tokenizer& tokenizer, const ChatOptions& options, const Row& first)
      : tokenizer_(tokenizer), options_(options), has_margin_(first.find(kMargin).has_value()) {
    options_.progress = {};
    options_.completion_only = false;
    options_.truncates = false;
  }

  [[nodiscard]] TokenContent encode(const RowBlock& block) const {
    TokenContent content;
    content.choices = 2;
    content.outputs = has_margin_ ? 1 : 0;
    for (const RowBlock::Row& position : block.rows) {
      const Row row(block, position);
      const std::vector<int32_t> chosen = ids_of(row, "chosen");
      const std::vector<int32_t> rejected = ids_of(row, "rejected");
      if (std::ssize(chosen) > options_.max_seq_length ||
          std::ssize(rejected) > options_.max_seq_length) {
        continue;
      }
      for (const std::vector<int32_t>* ids : {&chosen, &rejected}) {
        add_ids(content, *ids, row.position(), options_.vocabulary_limit);
      }
      if (has_margin_) content.values.push_back(number_of(row.at(kMargin), row, kMargin));
    }
    return content;
  }

 private:
  [[nodiscard]] std::vector<int32_t> ids_of(const Row& row, const char* side) const {
    try {
      return make_chat_sample(conversation_of(row, side), tokenizer_, options_).ids;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      const std::string what = error.what();
      if (what.starts_with(row.position())) throw;
      row.fail(std::string(side) + ": " + what);
    }
  }

  // A row of chat data: the prompt with the answer.
  [[nodiscard]] static Json conversation_of(const Row& row, const char* side) {
    const Json& answer = row.at(side);
    const bool has_prompt = row.find("prompt").has_value();
    if (answer.is_string()) {
      const std::string prompt = has_prompt ? row.text("prompt") : "";
      return {{"text", prompt + answer.get<std::string>()}};
    }
    if (!answer.is_array()) {
      row.fail(std::string("column '") + side + "' holds " + describe(answer) +
               "; it is a text or a list of messages");
    }
    Json messages = has_prompt ? row.list("prompt") : Json::array();
    for (const Json& message : answer) messages.push_back(message);
    Json conversation = {{"messages", std::move(messages)}};
    for (const char* name : {"tools", "chat_template_kwargs"}) {
      if (row.find(name)) conversation[name] = row.at(name);
    }
    return conversation;
  }

  const Tokenizer& tokenizer_;
  ChatOptions options_;
  bool has_margin_;
};

}  // namespace

std::shared_ptr<const SequenceDataset> build_preference_dataset(
    const std::vector<std::string>& files, const Tokenizer& tokenizer, const ChatOptions& options) {
  FT_CHECK(options.renderer != nullptr, "conversations need a renderer");
  const Row first = first_row(files, options);
  for (const char* side : {"chosen", "rejected"}) {
    if (first.find(side)) continue;
    first.refuse(std::string("there is no column '") + side + "'; the row has " +
                 column_names(first.columns()) +
                 "; preferences are rows of chosen and rejected, with prompt where both share one");
  }
  const auto encoder = std::make_shared<const PreferenceEncoder>(tokenizer, options, first);
  Json key = cache_options(options, "preferences");
  key["renderer"] = options.renderer_identity;
  key["special_tokens_as_text"] = options.special_tokens_as_text;
  return build_samples(
      {.files = files,
       .tokenizer = tokenizer,
       .cache_options = std::move(key),
       .limits = {},
       .encode = [encoder](const RowBlock& block) { return encoder->encode(block); }},
      options);
}

}  // namespace finetune
