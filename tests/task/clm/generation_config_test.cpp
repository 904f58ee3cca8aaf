// SPDX-License-Identifier: MIT
#include "task/generate/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

GenerationConfig read_settings(const std::string& json, const PredictOptions& options = {}) {
  const TemporaryFolder folder;
  if (!json.empty()) folder.write("generation_config.json", json);
  ModelConfig model;
  model.vocab_size = 100;
  model.eos_token_id = 2;
  return read_generation_config(folder.path(), model, options);
}

TEST(GenerationConfig, IsGreedyWhereNothingSaysOtherwise) {
  const GenerationConfig config = read_settings("");
  EXPECT_FALSE(config.do_sample);
  EXPECT_EQ(config.max_new_tokens, 256);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(GenerationConfig, IsTheModelsOwn) {
  const GenerationConfig config = read_settings(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": null,
          "eos_token_id": [3, 9], "repetition_penalty": 1.1, "max_new_tokens": 7})");
  EXPECT_TRUE(config.do_sample);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_p, 0.9);
  EXPECT_EQ(config.top_k, 50);
  EXPECT_EQ(config.repetition_penalty, 1.1);
  EXPECT_EQ(config.max_new_tokens, 7);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3, 9));
  EXPECT_THAT(read_settings(R"({"eos_token_id": 5})").eos_token_ids, ElementsAre(5));
}

TEST(GenerationConfig, FollowsTheUser) {
  EXPECT_TRUE(read_settings("", {.temperature = 0.5}).do_sample);
  EXPECT_FALSE(read_settings(R"({"do_sample": true})", {.do_sample = false}).do_sample);
  EXPECT_EQ(read_settings(R"({"max_new_tokens": 7})", {.max_new_tokens = 9}).max_new_tokens, 9);
}

TEST(GenerationConfig, NamesWhatCannotBe) {
  const auto error = [](const std::string& json, const PredictOptions& options = {}) {
    return message_of<Error>([&] { static_cast<void>(read_settings(json, options)); });
  };
  EXPECT_THAT(error(R"({"eos_token_id": [3, 100]})"), HasSubstr("generation_config.json"));
  EXPECT_THAT(error(R"({"top_p": 2})"), HasSubstr("top_p"));
  EXPECT_THAT(error(R"([1])"), HasSubstr("generation_config.json"));
  EXPECT_GOLDEN(error("", {.temperature = 0.0}));
  EXPECT_GOLDEN(error("", {.top_p = 0.0}));
}

}  // namespace
}  // namespace finetune
