// SPDX-License-Identifier: MIT
#include "finetune/data/chat_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "finetune/chat/find_template.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The tokenizer of the examples, whose end of text is "</s>" (2), with the template "alpaca".
class ChatRows : public ::testing::Test {
 protected:
  ChatRows() : tokenizer_(load_tokenizer(source_dir() + "/tests/fixtures/tokenizers/causal")) {}

  [[nodiscard]] ChatOptions options(bool assistant_only = true) const {
    chat::RenderOptions render{.variables = {{"eos_token", chat::Value("</s>")}},
                               .date = {},
                               .special_tokens = {"<s>", "</s>"},
                               .eos_token = "</s>",
                               .assistant_only = assistant_only,
                               .turns = chat::TurnChoice::kAll,
                               .instruction_template = {},
                               .response_template = {}};
    ChatOptions options;
    options.renderer = std::make_shared<const chat::ChatRenderer>(
        chat::find_chat_template("", "alpaca", "key"), std::move(render));
    options.max_seq_length = 64;
    options.vocabulary_limit = 600;
    return options;
  }
  [[nodiscard]] std::shared_ptr<const ChatDataset> read(const std::string& rows,
                                                        ChatOptions options) const {
    options.json_lines = rows;
    return build_chat_dataset({}, *tokenizer_, options);
  }
  [[nodiscard]] std::string learned(const Dataset& data, int64_t index) const {
    const Example example = data.get(index);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < example.labels.size(); ++i) {
      if (example.labels[i] < 0) continue;
      EXPECT_EQ(example.labels[i], example.input_ids[i]);
      ids.push_back(example.labels[i]);
    }
    return tokenizer_->decode(ids, false);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
};

constexpr char kQuestion[] =
    R"({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "The keeper."}]})"
    "\n";

TEST_F(ChatRows, LearnAnswersAndTheirEnd) {
  const auto data = read(std::string(kQuestion) + R"({"text": "The sea."})" + "\n" +
                             R"({"prompt": "The sea is", "completion": " deep."})" + "\n",
                         options());
  ASSERT_EQ(data->size(), 3);
  EXPECT_EQ(learned(*data, 0), "The keeper.</s>");
  EXPECT_EQ(learned(*data, 1), "<s>The sea.</s>");
  EXPECT_EQ(learned(*data, 2), " deep.</s>");
  EXPECT_FALSE(data->get(0).label.has_value());
}

TEST_F(ChatRows, CountWhatIsCutAndLeftOut) {
  const std::string only_question = R"({"messages": [{"role": "user", "content": "Who?"}]})"
                                    "\n";
  std::string words;
  for (int i = 0; i < 100; ++i) words += " sea";
  const std::string beyond = R"({"prompt": ")" + words + R"(", "completion": " b"})" + "\n";
  const std::string cut = R"({"text": ")" + words + words + R"("})" + "\n";
  ChatOptions with_limit = options();
  with_limit.skip_bad_rows = true;
  const auto data = read(
      kQuestion + only_question + beyond + cut + R"({"other": 1})" + "\n" + R"({"text": )" + "\n",
      with_limit);
  const ChatCounts& counts = data->counts();
  EXPECT_EQ(counts.rows, 6);
  EXPECT_EQ(counts.samples, 2);
  EXPECT_EQ(counts.nothing_learned, 1);
  EXPECT_EQ(counts.cut_off, 1);
  EXPECT_EQ(counts.truncated, 1);
  EXPECT_EQ(counts.bad, 2);
  EXPECT_EQ(data->length(1, 0), 64);
  EXPECT_EQ(counts.tokens, data->length(0, 0) + 64);
}

TEST_F(ChatRows, AreRefusedWithTheirLine) {
  try {
    static_cast<void>(
        read(std::string(kQuestion) + R"({"messages": [{"role": "user"}, 5]})" + "\n", options()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_GOLDEN(error.what());
    EXPECT_THAT(error.what(), HasSubstr("skip_bad_rows"));
  }
}

TEST_F(ChatRows, AreJoinedAndSplitWhereTheyWrap) {
  const auto data = read(std::string(kQuestion) + kQuestion, options(false));
  const auto rows = wrapped(*data, 20);
  int64_t tokens = 0;
  std::string text;
  for (int64_t i = 0; i < rows->size(); ++i) {
    EXPECT_EQ(rows->length(i, 0), i + 1 < rows->size() ? 20 : rows->length(i, 0));
    tokens += rows->length(i, 0);
    text += learned(*rows, i);
  }
  EXPECT_EQ(tokens, data->tokens());
  EXPECT_EQ(text, learned(*data, 0) + learned(*data, 1));
}

TEST_F(ChatRows, EncodeLiteralTextWithoutSpecialTokens) {
  const std::string text = "a</s>b</s>";
  const auto ends = [&](const std::vector<TextRange>& literal) {
    const Tokens tokens = tokenizer_->encode_with_literals(text, literal);
    std::vector<int64_t> found;
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      if (tokens.ids[i] == 2) found.push_back(tokens.ranges[i].begin);
    }
    EXPECT_EQ(tokenizer_->decode(tokens.ids, false), text);
    return found;
  };
  EXPECT_THAT(ends({}), ElementsAre(1, 6));
  EXPECT_THAT(ends({{0, 5}}), ElementsAre(6));
  EXPECT_THAT(ends({{3, 4}}), ElementsAre(6));
  EXPECT_THAT(ends({{0, 6}, {9, 10}}), ElementsAre());
}

}  // namespace
}  // namespace finetune
