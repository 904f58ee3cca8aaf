// SPDX-License-Identifier: MIT
#include "task/decision/laya_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

DecisionSettings settings_of(const Json& json) {
  return parse_laya_settings(json, "rl_agent_config.json");
}

TEST(LayaFiles, HaveATemperatureOfEachTypeAndOfNumbersOfOptions) {
  const DecisionSettings settings = settings_of(
      {{"temperature", {2.0, 0.1, 1.5}}, {"temperature_by_options", {{"choice:3-5", 9.0}}}});
  EXPECT_EQ(settings.temperature_of(QuestionType::kChoice, 2), 2.0);
  EXPECT_EQ(settings.temperature_of(QuestionType::kScore, 4), 0.5);  // laya's bounds
  EXPECT_EQ(settings.temperature_of(QuestionType::kNoul, 2), 1.5);
  EXPECT_EQ(settings.temperature_of(QuestionType::kChoice, 3), 5.0);
  EXPECT_EQ(settings.temperature_of(QuestionType::kChoice, 6), 2.0);
  EXPECT_EQ(settings.noul_options, (std::vector<std::string>{"false", "true"}));
  EXPECT_FALSE(settings.has_labels);
}

TEST(LayaFiles, OfAStartingModelKeepWhatTheyHave) {
  ModelConfig config = default_model_config("modernbert");
  config.laya = LayaConfig{.head_layers = 3, .max_len = 300, .head_max_len = 100, .actions = 2};
  DecisionSettings settings = new_laya_settings();
  settings.temperature = {1.25, 0.5, 2.0};  // noul, choice, score
  const Json start = {{"encoder", "jhu-clsp/mmBERT-base"},
                      {"act_costs", {{"ask", 0.3}}},
                      {"temperature_by_options", {{"noul:2", 0.7}}},
                      {"training", {{"note", "x"}}}};
  const Json written = Json::parse(laya_settings_text(start, config, settings));
  EXPECT_EQ(written["encoder"], "jhu-clsp/mmBERT-base");
  EXPECT_EQ(written["training"]["note"], "x");
  EXPECT_EQ(written["act_costs"]["ask"], 0.3);
  EXPECT_EQ(written["temperature"], Json({0.5, 2.0, 1.25}));  // choice, score, noul
  EXPECT_EQ(written["max_len"], 300);
  EXPECT_FALSE(written.contains("temperature_by_options"));
  EXPECT_FALSE(written.contains("dropout"));
  EXPECT_EQ(settings_of(written).temperature, settings.temperature);
}

TEST(LayaFiles, AreRefusedWhereTemperaturesAreNoNumbers) {
  for (const char* text : {R"({"temperature": [1, 2]})", R"({"temperature": "1"})",
                           R"({"temperature": [1, 2, null]})", R"({"temperature_by_options": [1]})",
                           R"({"temperature_by_options": {"noul:2": "x"}})", "[]"}) {
    EXPECT_THAT(testing::message_of<Error>([&] { (void)settings_of(Json::parse(text)); }),
                HasSubstr("rl_agent_config.json: "))
        << text;
  }
}

// A folder as laya writes it has no config.json.
TEST(LayaFiles, MakeTheConfigurationOfAModel) {
  const testing::TemporaryFolder folder;
  ModelConfig config =
      override_model_config(default_model_config("modernbert"), {{"num_hidden_layers", 3}});
  config.laya.emplace();
  std::filesystem::create_directories(folder / "encoder");
  folder.write("encoder/config.json", encoder_config_json(config));
  folder.write("rl_agent_config.json",
               R"({"head_layers": 1, "act_costs": {"a": 1, "b": 2}, "head_max_len": 64})");
  const ModelConfig read = read_model_config(folder.path());
  EXPECT_EQ(read.num_hidden_layers, 3);
  EXPECT_EQ(read.laya, (LayaConfig{.head_layers = 1, .head_max_len = 64, .actions = 3}));
  // And what a run writes is the same model.
  folder.write("config.json", model_config_json(read, "DecisionModel"));
  const ModelConfig again = read_model_config(folder.path());
  EXPECT_EQ(again.laya, read.laya);
  EXPECT_EQ(model_config_json(again, "DecisionModel"), model_config_json(read, "DecisionModel"));
  for (const char* bad :
       {R"({"head_layers": -1})", R"({"head_layers": "2"})", R"({"max_len": 99999999})",
        R"({"option_layout": "parallel"})", R"({"act_costs": ["a"]})"}) {
    folder.write("rl_agent_config.json", bad);
    EXPECT_THAT(testing::message_of<Error>([&] { (void)read_model_config(folder.path()); }),
                HasSubstr("rl_agent_config.json: "))
        << bad;
  }
}

}  // namespace
}  // namespace finetune
