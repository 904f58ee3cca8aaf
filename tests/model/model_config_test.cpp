// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/paths.h"

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

TEST(ModelConfig, HasEachFamilysOwnDefaults) {
  const Json expected = read_json_file(source_dir() + "/tests/fixtures/model/defaults.json");
  ASSERT_EQ(model_types().size(), expected.size());
  for (const std::string& type : model_types()) {
    const Json mine = Json::parse(model_config_json(default_model_config(type), "X"));
    for (const auto& [name, value] : expected.at(type).items()) {
      EXPECT_EQ(mine.value(name, Json("(not written)")), value) << type << ": " << name;
    }
    EXPECT_EQ(mine.size(), expected.at(type).size() + 2) << type;  // architectures and dtype
  }
}

TEST(ModelConfig, CountsPositionsFromThePaddingInRobertasKinAlone) {
  for (const std::string& type : model_types()) {
    ModelConfig config = default_model_config(type);
    config.pad_token_id = 1;
    config.max_position_embeddings = 514;
    EXPECT_EQ(config.max_length(), type.ends_with("roberta") ? 512 : 514) << type;
  }
}

Json read_and_write(const Json& json) {
  return Json::parse(model_config_json(parse_model_config(json, "c"), "BertForMaskedLM"));
}

TEST(ModelConfig, KeepsFieldsThatItDoesNotKnow) {
  const Json json = {{"model_type", "bert"},
                     {"use_cache", false},
                     {"chunk_size_feed_forward", 4},
                     {"attention_type", "mine"},  // big_bird's field; any other's own business
                     {"mine", {{"a", {1, 2.5, nullptr}}}}};
  const Json again = read_and_write(json);
  for (const auto& [name, value] : json.items()) EXPECT_EQ(again.at(name), value) << name;
}

TEST(ModelConfig, WritesAnewWhatSavingChanges) {
  const Json again = read_and_write({{"model_type", "bert"},
                                     {"architectures", {"BertModel"}},
                                     {"torch_dtype", "float16"},
                                     {"transformers_version", "4.6.0"},
                                     {"_name_or_path", "/home/me"},
                                     {"_num_labels", 5}});
  EXPECT_EQ(again.at("architectures"), Json::array({"BertForMaskedLM"}));
  EXPECT_EQ(again.at("dtype"), "float32");
  for (const char* name : {"torch_dtype", "transformers_version", "_name_or_path", "_num_labels"}) {
    EXPECT_FALSE(again.contains(name)) << name;
  }
}

TEST(ModelConfig, ComparesWithoutTheFieldsThatItDoesNotKnow) {
  const Json bare = {{"model_type", "roberta"}};
  const Json more = {{"model_type", "roberta"}, {"use_cache", false}, {"mine", 1}};
  const Json other = {{"model_type", "roberta"}, {"hidden_act", "relu"}};
  const auto text = [](const Json& json) {
    return model_config_json(parse_model_config(json, "c"), "");
  };
  EXPECT_EQ(text(bare), text(more));
  EXPECT_NE(text(bare), text(other));
}

TEST(ModelConfig, ReadsLabelsByTheirNumbers) {
  const ModelConfig config = parse_model_config({{"model_type", "bert"},
                                                 {"id2label",
                                                  {{"10", "k"},
                                                   {"0", "a"},
                                                   {"1", "b"},
                                                   {"2", "c"},
                                                   {"3", "d"},
                                                   {"4", "e"},
                                                   {"5", "f"},
                                                   {"6", "g"},
                                                   {"7", "h"},
                                                   {"8", "i"},
                                                   {"9", "j"}}},
                                                 {"num_labels", 3}},
                                                "c");
  EXPECT_THAT(config.id2label,
              testing::ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"));
  EXPECT_THAT(model_config_json(config, "X"), HasSubstr("\"9\": \"j\",\n    \"10\": \"k\""));
  EXPECT_THAT(model_config_json(config, "X"), HasSubstr("\"k\": 10"));
}

TEST(ModelConfig, NamesLabelsByNumberWhereOnlyTheirCountIsGiven) {
  const ModelConfig config = parse_model_config({{"model_type", "bert"}, {"num_labels", 3}}, "c");
  EXPECT_THAT(config.id2label, testing::ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
}

TEST(ModelConfig, TakesAnExplicitNullForAbsent) {
  const ModelConfig config = parse_model_config(
      {{"model_type", "roberta"}, {"bos_token_id", nullptr}, {"classifier_dropout", 0.3}}, "c");
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_EQ(config.eos_token_id, 2);
  EXPECT_EQ(config.classifier_dropout, 0.3);
}

TEST(ModelConfig, BeginsAtTheDefaultsOfAnOverriddenFamily) {
  const ModelConfig config =
      override_model_config({}, {{"model_type", "big_bird"}, {"block_size", 16}});
  EXPECT_EQ(config.hidden_act, "gelu_new");
  EXPECT_EQ(config.block_size, 16);
  EXPECT_THAT(message_of([] {
                (void)override_model_config({}, {{"block_size", 16}});
              }),
              HasSubstr("'block_size' is no field of the model"));
}

TEST(ModelConfig, KeepsTheSeedOfTheRandomBlocks) {
  ModelConfig config = default_model_config("big_bird");
  EXPECT_THAT(model_config_json(config, "X"), testing::Not(HasSubstr("random_blocks_seed")));
  EXPECT_THAT(model_config_json(config, "X"), testing::Not(HasSubstr("bigbird_compat")));
  config.random_blocks_seed = 31;
  config.bigbird_compat = "huggingface";
  const ModelConfig again =
      parse_model_config(Json::parse(model_config_json(config, "BigBirdForMaskedLM")), "c");
  EXPECT_EQ(again.random_blocks_seed, 31);
  EXPECT_EQ(again.bigbird_compat, "huggingface");
}

struct Refusal {
  Json field;
  std::string said;
};

TEST(ModelConfig, RefusesInOneSentence) {
  const std::vector<Refusal> refusals = {
      {{{"id2label", {{"0", "a"}, {"2", "b"}}}}, "none of number 1"},
      {{{"id2label", {{"0", "a"}, {"01", "b"}}}}, "none of number 1"},
      {{{"id2label", Json::object()}}, "'id2label' must map numbers"},
      {{{"id2label", Json::array({"a"})}}, "'id2label' must map numbers"},
      {{{"id2label", {{"0", 7}}}}, "names number 0 by no text"},
      {{{"num_labels", 0}}, "'num_labels' is 0"},
      {{{"problem_type", "rank"}}, "problem_type 'rank' is not known"},
      {{{"problem_type", "single_label_classification"}, {"num_labels", 1}}, "needs two labels"},
      {{{"hidden_act", "gelu_nwe"}}, "(did you mean 'gelu_new'?)"},
      {{{"hidden_act", "prelu"}}, "weights of its own"},
      {{{"hidden_act", {{"a", 1}}}}, "'hidden_act' is {\"a\":1}, but must be a text"},
      {{{"is_encoder_decoder", true}}, "decoders are not supported"},
      {{{"is_decoder", true}}, "decoders are not supported"},
      {{{"position_embedding_type", "relative_key"}}, "only 'absolute'"},
      {{{"eos_token_id", {1, 2}}}, "'eos_token_id' is [1,2], but must be a whole number"},
      {{{"classifier_dropout", 2}}, "'classifier_dropout' is 2"},
  };
  for (const Refusal& refusal : refusals) {
    Json json = refusal.field;
    json["model_type"] = "bert";
    EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "m/config.json"); }),
                testing::AllOf(testing::StartsWith("m/config.json: "), HasSubstr(refusal.said)));
  }
  EXPECT_THAT(
      message_of([] {
        (void)parse_model_config({{"model_type", "big_bird"}, {"attention_type", "x"}}, "c");
      }),
      HasSubstr("attention_type 'x' is not known"));
}

TEST(ModelConfig, ReadsAHundredThousandLabels) {
  std::string labels;
  for (int i = 0; i < 100'000; ++i) {
    labels += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"x\"";
  }
  const Json json = parse_json("{\"model_type\":\"bert\",\"id2label\":{" + labels + "}}", "c");
  const ModelConfig config = parse_model_config(json, "c");
  EXPECT_EQ(config.id2label.size(), 100'000U);
  EXPECT_GT(model_config_json(config, "X").size(), 1'000'000U);
}

}  // namespace
}  // namespace finetune
