// SPDX-License-Identifier: MIT
// What users of other programs reported, as tests: masks that leave nothing to learn (Unsloth 1128,
// 2117, 2364, 2734, 2771, 2900, 3041, 3198; TRL 3728), a doubled beginning of text (TRL 1509,
// OpenRLHF 393), and models that do not stop (Unsloth 416, 419, 468; LLaMA-Factory 7454).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/chat/find_template.h"
#include "finetune/data/chat_dataset.h"
#include "finetune/data/collate.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using testing::TemporaryFolder;

// A template, the special tokens of its models, and what of the conversation is learned.
struct Family {
  const char* name;
  std::vector<std::string> markers;
  const char* learned;
  int64_t beginnings;  // of text
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"llama3",
       {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       "The keeper.<|eot_id|>At night.<|eot_id|>",
       1},
      {"gemma",
       {"<start_of_turn>", "<end_of_turn>"},
       "The keeper.<end_of_turn>At night.<end_of_turn>",
       1},
      {"phi3",
       {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
       "The keeper.<|end|>At night.<|end|>",
       0},
      {"chatml", {"<|im_start|>", "<|im_end|>"}, "The keeper.<|im_end|>At night.<|im_end|>", 0},
      {"mistral", {"[INST]", "[/INST]"}, " The keeper.</s> At night.</s>", 1},
      {"alpaca", {}, "The keeper.</s>At night.</s>", 0},
  };
  return all;
}

// Two questions with their answers; `system`: what comes first.
std::string conversation(bool system) {
  Json messages = Json::array();
  if (system) messages.push_back({{"role", "system"}, {"content", "Be brief."}});
  for (const auto& [role, content] :
       {std::pair("user", "Who keeps it?"), std::pair("assistant", "The keeper."),
        std::pair("user", "When is it lit?"), std::pair("assistant", "At night.")}) {
    messages.push_back({{"role", role}, {"content", content}});
  }
  return Json{{"messages", messages}}.dump() + "\n";
}

class ChatThreads : public ::testing::TestWithParam<size_t> {
 protected:
  ChatThreads() {
    Json json = parse_json(FileSystem::local().read_all(
                               source_dir() + "/tests/fixtures/tokenizers/causal/tokenizer.json"),
                           "tokenizer.json");
    int32_t id = 600;
    for (const std::string& marker : family().markers) {
      json["added_tokens"].push_back({{"id", id++},
                                      {"content", marker},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    }
    folder_.write("tokenizer.json", json.dump());
    // As many models' tokenizers, it pads with the token that ends a text.
    folder_.write("tokenizer_config.json",
                  R"({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"})");
    tokenizer_ = load_tokenizer(folder_.path());
  }

  [[nodiscard]] static const Family& family() { return families()[GetParam()]; }

  [[nodiscard]] std::shared_ptr<const ChatDataset> read(const std::string& rows,
                                                        int64_t max_seq_length = 256) const {
    chat::RenderOptions render;
    render.variables = {{"bos_token", chat::Value("<s>")}, {"eos_token", chat::Value("</s>")}};
    render.special_tokens = family().markers;
    render.special_tokens.insert(render.special_tokens.end(), {"<s>", "</s>"});
    render.eos_token = "</s>";
    render.assistant_only = true;
    ChatOptions options;
    options.renderer = std::make_shared<const chat::ChatRenderer>(
        chat::find_chat_template("", family().name, "key"), std::move(render));
    options.max_seq_length = max_seq_length;
    options.json_lines = rows;
    return build_chat_dataset({}, *tokenizer_, options);
  }

  [[nodiscard]] std::string learned(const Example& example) const {
    std::vector<int32_t> ids;
    for (const int32_t label : example.labels) {
      if (label != kIgnoredLabel) ids.push_back(label);
    }
    return tokenizer_->decode(ids, false);
  }

  TemporaryFolder folder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

// Without markers that the user has to spell, and in every turn.
TEST_P(ChatThreads, EveryAnswerIsLearnedWithItsEnd) {
  const auto data = read(conversation(false) + conversation(true));
  ASSERT_EQ(data->size(), 2);
  EXPECT_EQ(learned(data->get(0)), family().learned);
  EXPECT_EQ(learned(data->get(1)), family().learned);
}

TEST_P(ChatThreads, ATextBeginsOnce) {
  const auto data = read(conversation(true));
  const Example example = data->get(0);
  const int32_t bos = *tokenizer_->token_to_id("<s>");
  EXPECT_EQ(std::ranges::count(example.input_ids, bos), family().beginnings);
}

// Rows whose answers are cut off are left out and counted, instead of being learned as nothing.
TEST_P(ChatThreads, RowsWithoutAnAnswerAreCounted) {
  const int64_t length = read(conversation(false))->length(0, 0);
  const std::string words(static_cast<size_t>(length) * 8, 'x');
  const Json asked = {
      {"messages",
       {{{"role", "user"}, {"content", words}}, {{"role", "assistant"}, {"content", "Yes."}}}}};
  const auto data = read(conversation(false) + asked.dump() + "\n", length);
  EXPECT_EQ(data->size(), 1);
  EXPECT_EQ(data->counts().cut_off, 1);
}

// The end of an answer stays a target where the same token pads, so that the model learns to stop.
TEST_P(ChatThreads, PaddingIsNotLearnedAndTheEndIs) {
  const std::string text = R"({"text": "Sea."})"
                           "\n";
  const auto data = read(conversation(false) + text);
  const int32_t eos = *tokenizer_->token_to_id("</s>");
  const CausalLmCollator collator(
      {.pad_id = eos, .pad_to_max_length = false, .max_seq_length = 256});
  const std::vector<SampleKey> samples = {{.index = 0}, {.index = 1}};
  Batch batch;
  collator.collate(*data, samples, batch);
  const Example short_row = data->get(1);
  ASSERT_EQ(short_row.input_ids.back(), eos);
  const auto size = std::ssize(short_row.input_ids);
  int64_t ends = 0;
  for (int64_t t = 0; t < batch.length; ++t) {
    const auto at = static_cast<size_t>(batch.length + t);
    const bool is_target = batch.labels[at] != kIgnoredLabel;
    EXPECT_EQ(is_target, t + 1 < size) << t;
    if (is_target && batch.labels[at] == eos) ++ends;
  }
  EXPECT_EQ(ends, 1);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatThreads, ::testing::Range<size_t>(0, 6),
                         [](const auto& test) { return families()[test.param].name; });

}  // namespace
}  // namespace finetune
