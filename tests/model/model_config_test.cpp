// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(ModelConfig, ReadsWhatItWrites) {
  ModelConfig config;
  config.vocab_size = 300;
  config.hidden_size = 24;
  config.num_attention_heads = 3;
  config.layer_norm_eps = 1e-5;
  const ModelConfig again = parse_model_config(
      Json::parse(model_config_json(config, "RobertaForMaskedLM")), "config.json");
  EXPECT_EQ(model_config_json(again, "RobertaForMaskedLM"),
            model_config_json(config, "RobertaForMaskedLM"));
  EXPECT_EQ(again.vocab_size, 300);
  EXPECT_EQ(again.layer_norm_eps, 1e-5);
}

TEST(ModelConfig, LeavesRoomForPositionsBehindThePadding) {
  ModelConfig config;
  config.max_position_embeddings = 514;
  EXPECT_EQ(config.max_length(), 512);
}

TEST(ModelConfig, RefusesNumbersOutOfBounds) {
  const Json json = {{"model_type", "roberta"}, {"num_hidden_layers", 1'000'000'000}};
  EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "m/config.json"); }),
              HasSubstr("m/config.json: 'num_hidden_layers' is 1000000000"));
}

TEST(ModelConfig, RefusesWrongTypesAndFamilies) {
  EXPECT_THAT(message_of([] {
                (void)parse_model_config({{"model_type", "roberta"}, {"hidden_size", "768"}}, "c");
              }),
              HasSubstr("must be a whole number"));
  EXPECT_THAT(message_of([] {
                (void)parse_model_config({{"model_type", "gpt2"}}, "c");
              }),
              HasSubstr("model_type 'gpt2' is not available"));
  EXPECT_THAT(message_of([] { (void)parse_model_config(Json::object(), "c"); }),
              HasSubstr("has no 'model_type'"));
}

TEST(ModelConfig, RefusesHeadsThatDoNotDivideTheHiddenSize) {
  EXPECT_THAT(message_of([] {
                (void)override_model_config({}, {{"hidden_size", 100}, {"num_attention_heads", 3}});
              }),
              HasSubstr("does not divide"));
}

TEST(ModelConfig, NamesTheNearestFieldOfAnUnknownOverride) {
  EXPECT_THAT(message_of([] {
                (void)override_model_config({}, {{"hiden_size", 64}});
              }),
              HasSubstr("'hiden_size' is no field of the model (did you mean 'hidden_size'?)"));
}

}  // namespace
}  // namespace finetune
