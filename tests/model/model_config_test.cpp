// SPDX-License-Identifier: MIT
#include "finetune/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/golden.h"
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
  EXPECT_GOLDEN(message_of([&] { (void)parse_model_config(json, "m/config.json"); }));
}

TEST(ModelConfig, RefusesWrongTypesAndFamilies) {
  EXPECT_GOLDEN(message_of([] {
    (void)parse_model_config({{"model_type", "roberta"}, {"hidden_size", "768"}}, "c");
  }));
  EXPECT_GOLDEN(message_of([] { (void)parse_model_config({{"model_type", "qwen9"}}, "c"); }));
  EXPECT_GOLDEN(message_of([] { (void)parse_model_config(Json::object(), "c"); }));
}

TEST(ModelConfig, RefusesHeadsThatDoNotDivideTheHiddenSize) {
  EXPECT_GOLDEN(message_of([] {
    (void)override_model_config({}, {{"hidden_size", 100}, {"num_attention_heads", 3}});
  }));
}

TEST(ModelConfig, NamesTheNearestFieldOfAnUnknownOverride) {
  EXPECT_GOLDEN(message_of([] { (void)override_model_config({}, {{"hiden_size", 64}}); }));
}

// As in transformers: of the families here phi3 and glm4 read it with the default type.
TEST(ModelConfig, RotatesAPartOfEachHeadWhereTheFamilyDoes) {
  for (const auto& [type, is_part] :
       {std::pair("llama", false), {"granite", false}, {"glm4", true}, {"phi3", true}}) {
    const Json json = {{"model_type", type}, {"partial_rotary_factor", 0.25}};
    const ModelConfig config = parse_model_config(json, "c");
    EXPECT_EQ(config.decoder.rope_parameters.at("").partial_rotary_factor.has_value(), is_part)
        << type;
    const Json linear = {{"model_type", type},
                         {"partial_rotary_factor", 0.25},
                         {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}};
    if (type == std::string("phi3")) continue;  // has no such type
    EXPECT_EQ(parse_model_config(linear, "c").decoder.rope_parameters.at("").partial_rotary_factor,
              0.25);
  }
}

TEST(ModelConfig, RefusesTheOtherMask) {
  for (const auto& [type, causal] : {std::pair("llama", false), {"glm4", false}, {"bert", true}}) {
    const Json json = {{"model_type", type}, {"is_causal", causal}};
    EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "c"); }), HasSubstr("is_causal"));
    const Json own = {{"model_type", type}, {"is_causal", !causal}};
    EXPECT_EQ(parse_model_config(own, "c").model_type, type);
  }
}

TEST(ModelConfig, HasEachFamilysOwnDefaults) {
  const Json expected = read_json_file(source_dir() + "/tests/fixtures/model/defaults.json");
  ASSERT_EQ(model_types().size(), expected.size());
  for (const std::string& type : model_types()) {
    Json mine = Json::parse(model_config_json(default_model_config(type), "X"));
    if (type == "ministral3") mine["rope_parameters"]["type"] = "yarn";  // both names
    for (const auto& [name, value] : expected.at(type).items()) {
      // null, which Ministral's model refuses
      if ((type == "ministral" || type == "hunyuan_v1_dense") && name == "head_dim") continue;
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
    EXPECT_EQ(config.max_length(),
              type.find("roberta") != std::string::npos || type == "camembert" || type == "mpnet"
                  ? 512
                  : 514)
        << type;
  }
}

Json read_and_write(const Json& json) {
  return Json::parse(model_config_json(parse_model_config(json, "c"), "BertForMaskedLM"));
}

TEST(ModelConfig, KeepsFieldsThatItDoesNotKnow) {
  const Json json = {{"model_type", "bert"},
                     {"use_cache", false},
                     {"chunk_size_feed_forward", 4},
                     {"attention_type", "mine"},  // big_bird's field; other families ignore it
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
  EXPECT_GOLDEN(message_of([] { (void)override_model_config({}, {{"block_size", 16}}); }));
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
      {{{"hidden_act", "prelu"}}, "has weights"},
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
  EXPECT_GOLDEN(message_of([] {
    (void)parse_model_config({{"model_type", "big_bird"}, {"attention_type", "x"}}, "c");
  }));
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

Json decoder(const Json& fields) {
  Json json = {{"model_type", "llama"},    {"hidden_size", 16},      {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"num_hidden_layers", 2}, {"intermediate_size", 24},
               {"vocab_size", 32}};
  json.update(fields);
  return json;
}

std::string refusal_of(const Json& fields) {
  return message_of([&] { (void)parse_model_config(decoder(fields), "m/config.json"); });
}

TEST(DecoderConfig, ReadsTheSpellingsOfTransformers4) {
  const ModelConfig config =
      parse_model_config(decoder({{"rope_theta", 500000.0},
                                  {"rope_scaling",
                                   {{"type", "llama3"},
                                    {"factor", 8.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0},
                                    {"original_max_position_embeddings", 8192}}},
                                  {"torch_dtype", "bfloat16"},
                                  {"max_position_embeddings", 10'000'000},
                                  {"eos_token_id", {3, 4}}}),
                         "c");
  const Json again = Json::parse(model_config_json(config, "LlamaForCausalLM", "bfloat16"));
  EXPECT_EQ(again.at("rope_parameters"), Json({{"factor", 8.0},
                                               {"high_freq_factor", 4.0},
                                               {"low_freq_factor", 1.0},
                                               {"original_max_position_embeddings", 8192},
                                               {"rope_theta", 500000.0},
                                               {"rope_type", "llama3"}}));
  EXPECT_EQ(again.at("dtype"), "bfloat16");
  EXPECT_EQ(again.at("eos_token_id"), Json({3, 4}));
  EXPECT_EQ(again.at("head_dim"), 4);
  for (const char* name : {"rope_theta", "rope_scaling", "torch_dtype"}) {
    EXPECT_FALSE(again.contains(name)) << name;
  }
  EXPECT_EQ(config.max_length(), 65536);
  EXPECT_EQ(config.eos_token_id, 3);
}

TEST(DecoderConfig, ReadsGemma3sRotationsInBothSpellings) {
  const Json sizes = {{"model_type", "gemma3_text"}, {"num_hidden_layers", 6}};
  Json old = sizes;
  old.update({{"rope_theta", 5e5},
              {"rope_local_base_freq", 7e3},
              {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
              {"sliding_window_pattern", 3}});
  Json now = sizes;
  now.update({{"rope_parameters",
               {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
                {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7e3}}}}},
              {"_sliding_window_pattern", 3}});
  EXPECT_EQ(model_config_json(parse_model_config(old, "c"), "X"),
            model_config_json(parse_model_config(now, "c"), "X"));
}

// As transformers 5.23 does: LlamaConfig and Gemma3TextConfig of the same files.
TEST(DecoderConfig, PrefersRopeScalingToRopeParameters) {
  const auto rope = [](const Json& fields) {
    return Json::parse(model_config_json(parse_model_config(decoder(fields), "c"), "X"))
        .at("rope_parameters");
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  const Json given = {{"rope_type", "default"}, {"rope_theta", 7e3}};
  const Json of_linear = {{"factor", 2.0}, {"rope_theta", 10000.0}, {"rope_type", "linear"}};
  EXPECT_EQ(rope({{"rope_parameters", given}, {"rope_scaling", linear}}), of_linear);
  EXPECT_EQ(rope({{"rope_parameters", given}, {"rope_scaling", Json::object()}}).at("rope_theta"),
            7e3);
  const Json by_type = {{"full_attention", given}, {"sliding_attention", given}};
  const Json both =
      rope({{"model_type", "gemma3_text"}, {"rope_parameters", by_type}, {"rope_scaling", linear}});
  EXPECT_EQ(both.at("full_attention"),
            Json({{"factor", 2.0}, {"rope_theta", 7e3}, {"rope_type", "linear"}}));
  EXPECT_EQ(both.at("sliding_attention").at("rope_type"), "default");
}

TEST(DecoderConfig, RefusesNumbersThatDoNotFitEachOther) {
  EXPECT_GOLDEN(refusal_of({{"num_key_value_heads", 3}}));
  EXPECT_GOLDEN(refusal_of({{"num_attention_heads", 6}}));
  EXPECT_GOLDEN(refusal_of({{"head_dim", 5}}));
  EXPECT_GOLDEN(refusal_of({{"pad_token_id", 32}}));
  EXPECT_GOLDEN(refusal_of({{"model_type", "mistral"}, {"sliding_window", 0}}));
  EXPECT_GOLDEN(refusal_of({{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}}));
  EXPECT_THAT(refusal_of({{"model_type", "qwen2"},
                          {"layer_types", {"full_attention", "linear_attention"}}}),
              HasSubstr("layer_types has 'linear_attention'"));
  EXPECT_GOLDEN(refusal_of(
      {{"model_type", "qwen2"}, {"layer_types", {"full_attention", "sliding_attention"}}}));
  EXPECT_GOLDEN(
      refusal_of({{"model_type", "smollm3"}, {"no_rope_layers", {1}}, {"pad_token_id", 1}}));
}

TEST(DecoderConfig, RefusesRotationsThatCannotBe) {
  const auto rope = [](const Json& parameters) {
    return refusal_of({{"rope_parameters", parameters}});
  };
  EXPECT_GOLDEN(rope({{"rope_type", "llama4"}}));
  EXPECT_GOLDEN(rope({{"rope_type", "linear"}}));
  EXPECT_THAT(rope({{"rope_type", "yarn"}, {"factor", 4.0}}),
              HasSubstr("needs 'original_max_position_embeddings'"));
  EXPECT_GOLDEN(rope({{"rope_type", "longrope"},
                      {"original_max_position_embeddings", 8},
                      {"short_factor", {1.0}},
                      {"long_factor", {1.0, 2.0}}}));
  EXPECT_GOLDEN(rope({{"rope_type", "linear"}, {"factor", "two"}}));
  EXPECT_GOLDEN(rope(Json("linear")));
}

// As in transformers, whose classes have a scaling for files without one.
TEST(DecoderConfig, TakesTheFilesRotaryParametersWhole) {
  const Json own = {{"rope_type", "yarn"},
                    {"factor", 2.0},
                    {"llama_4_scaling_beta", 0.5},
                    {"original_max_position_embeddings", 8}};
  const ModelConfig config =
      parse_model_config({{"model_type", "ministral3"}, {"rope_parameters", own}}, "c");
  const RopeParameters& rope = config.decoder.rope_parameters.at("");
  EXPECT_EQ(rope.factor, 2.0);
  EXPECT_EQ(rope.mscale, std::nullopt);
  EXPECT_EQ(rope.llama_4_scaling_beta, 0.5);
}

TEST(DecoderConfig, ReadsMembersOfRotaryParametersThatOneFamilyAloneHas) {
  const Json own = {{"rope_type", "dynamic"},
                    {"factor", 1.0},
                    {"alpha", 9.0},
                    {"llama_4_scaling_beta", 0.5},
                    {"original_max_position_embeddings", 8}};
  const auto rope_of = [&](const char* type) {
    return parse_model_config({{"model_type", type}, {"rope_parameters", own}}, "c")
        .decoder.rope_parameters.at("");
  };
  EXPECT_EQ(rope_of("hunyuan_v1_dense").alpha, 9.0);
  EXPECT_EQ(rope_of("ministral3").llama_4_scaling_beta, 0.5);
  EXPECT_EQ(rope_of("llama").alpha, std::nullopt);
  EXPECT_EQ(rope_of("llama").llama_4_scaling_beta, std::nullopt);
}

TEST(DecoderConfig, ReadsOldNamesOfRotaryParameters) {
  const ModelConfig config = parse_model_config(
      {{"model_type", "gpt_neox"}, {"rotary_pct", 0.5}, {"rotary_emb_base", 500}}, "c");
  EXPECT_EQ(config.decoder.rope_parameters.at("").partial_rotary_factor, 0.5);
  EXPECT_EQ(config.decoder.rope_parameters.at("").rope_theta, 500.0);
  EXPECT_EQ(parse_model_config({{"model_type", "gpt_neox"}}, "c")
                .decoder.rope_parameters.at("")
                .partial_rotary_factor,
            0.25);
}

TEST(DecoderConfig, ReadsAPatternOfWindowsAsANumberOrAName) {
  const auto layers_of = [](const Json& more) {
    Json json = {{"model_type", "exaone4"}, {"num_hidden_layers", 3}};
    json.update(more);
    return parse_model_config(json, "c").decoder.layer_types;
  };
  const std::vector<std::string> every_second = {"sliding_attention", "full_attention",
                                                 "sliding_attention"};
  EXPECT_EQ(layers_of({{"sliding_window_pattern", 2}}), every_second);
  EXPECT_EQ(layers_of({{"sliding_window_pattern", "LG"}, {"layer_types", every_second}}),
            every_second);
  EXPECT_EQ(layers_of({{"sliding_window", nullptr}}),
            std::vector<std::string>(3, "full_attention"));
  EXPECT_THAT(message_of([&] {
                (void)layers_of({{"sliding_window_pattern", "LLG"}});
              }),
              HasSubstr("sliding_window_pattern"));
}

TEST(DecoderConfig, RefusesNormsOfHeadsThatItDoesNotHave) {
  for (const char* type : {"phi", "stablelm"}) {
    const Json json = {{"model_type", type}, {"qk_layernorm", true}};
    EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "c"); }),
                HasSubstr("qk_layernorm"));
  }
}

// As transformers' AutoModelForCausalLM.
TEST(DecoderConfig, IsTheLanguageModelOfAModelOfImages) {
  const Json text = {{"model_type", "qwen3_5_text"}, {"hidden_size", 64}};
  const Json whole = {{"model_type", "qwen3_5"},
                      {"text_config", text},
                      {"vision_config", {{"hidden_size", 32}}},
                      {"tie_word_embeddings", true}};
  const ModelConfig config = parse_model_config(whole, "c");
  EXPECT_EQ(config.model_type, "qwen3_5_text");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(message_of([] {
                (void)parse_model_config({{"model_type", "qwen3_5"}}, "c");
              }),
              HasSubstr("text_config"));
  const Json unknown = {{"model_type", "qwen3_5"}, {"text_config", {{"model_type", "t5"}}}};
  EXPECT_THAT(message_of([&] { (void)parse_model_config(unknown, "c"); }),
              HasSubstr("text_config: model_type 't5'"));
}

TEST(DecoderConfig, DerivesWindowsAndLayersFromOverriddenNumbers) {
  const auto window_of = [](int64_t local) {
    return override_model_config(default_model_config("modernbert-decoder"),
                                 {{"local_attention", local}})
        .decoder.sliding_window;
  };
  EXPECT_EQ(window_of(16), 8);
  EXPECT_EQ(window_of(128), 64);
  const ModelConfig lfm2 =
      override_model_config(default_model_config("lfm2"), {{"num_hidden_layers", 40}});
  EXPECT_EQ(lfm2.decoder.layer_types, std::vector<std::string>(40, "full_attention"));
}

Json gemma4_of(const Json& own) {
  Json json = {{"model_type", "gemma4_text"}, {"num_hidden_layers", 4}, {"head_dim", 8}};
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention",
                         "full_attention"};
  json.update(own);
  return json;
}

// In Google's files by two fields, in transformers' by layer.
TEST(DecoderConfig, ReadsSizesOfSingleLayersInBothForms) {
  const Json google = gemma4_of(
      {{"global_head_dim", 16}, {"num_global_key_value_heads", 2}, {"attention_k_eq_v", true}});
  const ModelConfig config = parse_model_config(google, "c");
  const Json layers = {{"1", {{"head_dim", 16}, {"num_key_value_heads", 2}}},
                       {"3", {{"head_dim", 16}, {"num_key_value_heads", 2}}}};
  const Json written = Json::parse(model_config_json(config, "X"));
  EXPECT_EQ(written.at("per_layer_config"), layers);
  EXPECT_FALSE(written.contains("global_head_dim"));
  EXPECT_EQ(parse_model_config(written, "c").decoder.per_layer_config,
            config.decoder.per_layer_config);
  // Without shared heads, the number of those of full attention is not read.
  EXPECT_EQ(parse_model_config(gemma4_of({{"num_global_key_value_heads", 2}}), "c")
                .decoder.per_layer_config->at(1)
                .num_key_value_heads,
            std::nullopt);
  const ModelConfig longer =
      override_model_config(default_model_config("gemma4_text"), {{"num_hidden_layers", 12}});
  EXPECT_EQ(longer.decoder.per_layer_config->rbegin()->first, 11);
}

TEST(DecoderConfig, RefusesLayersThatItCannotBuild) {
  const std::vector<std::pair<Json, const char*>> faults = {
      {{{"enable_moe_block", true}}, "enable_moe_block"},
      {{{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention"},
      {{{"num_kv_shared_layers", 4}}, "num_kv_shared_layers"},
      {{{"num_kv_shared_layers", 3}}, "num_kv_shared_layers"},
      {{{"per_layer_config", {{"7", {{"head_dim", 16}}}}}}, "per_layer_config"},
      {{{"per_layer_config", {{"1", {{"head_dim", 16}}}}}}, "per_layer_config"},
      {{{"per_layer_config", {{"1", {{"sliding_window", 16}}}}}}, "per_layer_config.1"},
      {{{"per_layer_config", {{"x", {{"head_dim", 16}}}}}}, "per_layer_config.x"},
      {{{"per_layer_config", {{"1", {{"num_key_value_heads", 3}}}}}}, "per_layer_config.1"},
      {{{"per_layer_config", Json::array()}}, "per_layer_config"},
      {{{"vocab_size_per_layer_input", 100}}, "vocab_size_per_layer_input"}};
  for (const auto& [fault, field] : faults) {
    EXPECT_THAT(message_of([&] { (void)parse_model_config(gemma4_of(fault), "c"); }),
                HasSubstr(field))
        << fault;
  }
  const std::vector<std::pair<Json, const char*>> of_3n = {
      {{{"altup_active_idx", 4}}, "altup_active_idx"},
      {{{"altup_coef_clip", 1.0}}, "altup_coef_clip"},
      {{{"intermediate_size", {64, 64}}}, "intermediate_size"},
      {{{"activation_sparsity_pattern", {0.5}}}, "activation_sparsity_pattern"},
      {{{"hidden_size_per_layer_input", 0}}, "hidden_size_per_layer_input"}};
  for (const auto& [fault, field] : of_3n) {
    Json json = {{"model_type", "gemma3n_text"}};
    json.update(fault);
    EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "c"); }), HasSubstr(field))
        << fault;
  }
}

TEST(DecoderConfig, RefusesExpertsThatItCannotBuild) {
  const std::vector<std::pair<Json, const char*>> faults = {
      {{{"num_experts", 4}, {"num_experts_per_tok", 5}}, "num_experts_per_tok"},
      {{{"output_router_logits", true}}, "output_router_logits"},
      {{{"num_experts", nullptr}}, "num_experts"},
      {{{"num_experts", 0}}, "num_experts"}};
  for (const auto& [fault, field] : faults) {
    for (const char* type : {"olmoe", "qwen3_moe"}) {
      Json json = {{"model_type", type}};
      json.update(fault);
      EXPECT_THAT(message_of([&] { (void)parse_model_config(json, "c"); }), HasSubstr(field))
          << json;
    }
  }
  EXPECT_THAT(message_of([] {
                (void)parse_model_config({{"model_type", "olmoe"}, {"clip_qkv", 8.0}}, "c");
              }),
              HasSubstr("clip_qkv"));
  const Json old = {{"model_type", "qwen3_moe"}, {"num_experts", 16}};
  const Json written = Json::parse(model_config_json(parse_model_config(old, "c"), "X"));
  EXPECT_EQ(written.at("num_local_experts"), 16);
  EXPECT_FALSE(written.contains("num_experts"));
}

// What transformers does not read either.
TEST(DecoderConfig, IgnoresSharesOfRotationsThatItsClassIgnores) {
  for (const char* type : {"modernbert", "modernbert-decoder"}) {
    const Json json = {{"model_type", type}, {"partial_rotary_factor", 0.5}};
    for (const auto& [layers, rope] : parse_model_config(json, "c").decoder.rope_parameters) {
      EXPECT_EQ(rope.partial_rotary_factor, std::nullopt) << type << layers;
    }
  }
  const Json neox = {{"model_type", "gpt_neox"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parse_model_config(neox, "c").decoder.rope_parameters.at("").partial_rotary_factor,
            0.25);
}

TEST(DecoderConfig, TakesTheBaseOfRotationsWithTheRest) {
  const auto base_of = [](const Json& more) {
    Json json = {{"model_type", "ministral3"}};
    json.update(more);
    return parse_model_config(json, "c").decoder.rope_parameters.at("").rope_theta;
  };
  const Json own = {{"rope_type", "yarn"},
                    {"factor", 2.0},
                    {"llama_4_scaling_beta", 0.1},
                    {"original_max_position_embeddings", 8}};
  EXPECT_EQ(base_of(Json::object()), 1e6);
  EXPECT_EQ(base_of({{"rope_theta", 100.0}}), 1e6);
  EXPECT_EQ(base_of({{"rope_parameters", own}}), 1e4);
  EXPECT_EQ(base_of({{"rope_scaling", own}, {"rope_theta", 100.0}}), 100.0);
  EXPECT_THAT(message_of([&] {
                const Json plain = {{"rope_type", "default"}};
                (void)base_of({{"rope_parameters", plain}});
              }),
              HasSubstr("llama_4_scaling_beta"));
}

TEST(ModelConfig, ReadsThatNomicsEmbeddingsAreNotTied) {
  const ModelConfig config =
      parse_model_config({{"model_type", "nomic_bert"}, {"tie_word_embeddings", false}}, "c");
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(Json::parse(model_config_json(config, "X")).at("tie_word_embeddings"), false);
  EXPECT_FALSE(Json::parse(model_config_json(default_model_config("nomic_bert"), "X"))
                   .contains("tie_word_embeddings"));
  EXPECT_EQ(parse_model_config({{"model_type", "gte"}, {"position_embedding_type", "rope"}}, "c")
                .model_type,
            "gte");
}

TEST(DecoderConfig, RefusesWhatItCannotCompute) {
  EXPECT_GOLDEN(refusal_of({{"quantization_config", {{"quant_method", "bitsandbytes"}}}}));
  EXPECT_GOLDEN(refusal_of({{"add_cross_attention", true}}));
  EXPECT_GOLDEN(refusal_of({{"model_type", "gemma"}, {"use_bidirectional_attention", true}}));
}

TEST(DecoderConfig, DerivesAnewWhatFollowsFromOverriddenNumbers) {
  const ModelConfig config =
      override_model_config(default_model_config("qwen2"), {{"hidden_size", 64},
                                                            {"num_attention_heads", 4},
                                                            {"num_key_value_heads", 2},
                                                            {"num_hidden_layers", 3}});
  EXPECT_EQ(
      override_model_config(default_model_config("qwen3"), {{"hidden_size", 64}}).decoder.head_dim,
      128);  // default of transformers' class
  EXPECT_EQ(config.decoder.head_dim, 16);
  EXPECT_EQ(config.decoder.layer_types.size(), 3);
  const ModelConfig llama = override_model_config(
      default_model_config("llama"), {{"hidden_size", 64}, {"num_attention_heads", 4}});
  EXPECT_EQ(llama.decoder.num_key_value_heads, 4);
}

// Returns config.json of an encoder with four fields changed.
Json encoder(const std::string& type, const Json& changed) {
  Json json = {{"model_type", type},           {"vocab_size", 32},  {"hidden_size", 16},
               {"num_attention_heads", 4},     {"pad_token_id", 0}, {"num_hidden_layers", 4},
               {"max_position_embeddings", 20}};
  json.update(changed);
  return json;
}

std::string encoder_refusal(const std::string& type, const Json& changed) {
  return message_of([&] { (void)parse_model_config(encoder(type, changed), "m/config.json"); });
}

TEST(ModernBertConfig, IsReadInBothSpellings) {
  const Json old = encoder(
      "modernbert",
      {{"global_rope_theta", 5e3}, {"local_rope_theta", 77.0}, {"global_attn_every_n_layers", 2}});
  const Json now =
      encoder("modernbert",
              {{"rope_parameters",
                {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}},
                 {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 77.0}}}}},
               {"layer_types",
                {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}},
               {"global_attn_every_n_layers", 2}});
  const std::string written = model_config_json(parse_model_config(old, "c"), "X");
  EXPECT_EQ(written, model_config_json(parse_model_config(now, "c"), "X"));
  EXPECT_FALSE(Json::parse(written).contains("global_rope_theta"));
}

// The golden's configuration was made with rope_scaling by transformers.
TEST(ModernBertConfig, ScalesLayersOfBothTypes) {
  const std::string path =
      source_dir() + "/tests/fixtures/model/modernbert-masked_lm-scaled/config.json";
  const Json now = read_json_file(path);
  Json old = now;
  old.erase("rope_parameters");
  old["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 5}};
  old.update({{"global_rope_theta", 50.0}, {"local_rope_theta", 20.0}});
  EXPECT_EQ(Json::parse(model_config_json(parse_model_config(old, "c"), "X")).at("rope_parameters"),
            now.at("rope_parameters"));
}

TEST(ModernBertConfig, RefusesNumbersThatDoNotFitEachOther) {
  const auto refusal = [](const Json& changed) { return encoder_refusal("modernbert", changed); };
  EXPECT_GOLDEN(refusal({{"layer_types", {"full_attention"}}}));
  EXPECT_GOLDEN(refusal({{"local_attention", 0}}));
  EXPECT_GOLDEN(refusal({{"global_attn_every_n_layers", 0}}));
  EXPECT_GOLDEN(refusal({{"hidden_size", 12}}));
  EXPECT_GOLDEN(refusal({{"classifier_pooling", "max"}}));
  EXPECT_GOLDEN(refusal({{"classifier_activation", "geluu"}}));
  EXPECT_GOLDEN(refusal({{"pad_token_id", 32}}));
}

TEST(DebertaConfig, ReadsTermsAsTextAndAsAList) {
  const auto terms = [](const Json& value) {
    return parse_model_config(encoder("deberta-v2", {{"pos_att_type", value}}), "c")
        .encoder.pos_att_type;
  };
  EXPECT_EQ(terms("p2c|c2p"), (std::vector<std::string>{"p2c", "c2p"}));
  EXPECT_EQ(terms({"c2p"}), (std::vector<std::string>{"c2p"}));
  EXPECT_TRUE(terms(nullptr).empty());
}

TEST(DebertaConfig, RefusesNumbersThatDoNotFitEachOther) {
  const auto refusal = [](Json changed) {
    changed["relative_attention"] = true;
    return encoder_refusal("deberta-v2", changed);
  };
  EXPECT_GOLDEN(refusal({{"pos_att_type", "p2c|p2p"}}));
  EXPECT_GOLDEN(refusal({{"conv_kernel_size", 3}}));
  EXPECT_GOLDEN(refusal({{"embedding_size", 8}}));
  EXPECT_GOLDEN(refusal({{"pooler_hidden_size", 8}}));
  EXPECT_THAT(refusal({{"attention_head_size", 8}}), HasSubstr("attention_head_size 8 differs"));
  EXPECT_GOLDEN(refusal({{"norm_rel_ebd", "batch_norm"}}));
  EXPECT_GOLDEN(refusal({{"position_buckets", 1}}));
  EXPECT_GOLDEN(refusal({{"position_buckets", 8}, {"max_relative_positions", 5}}));
  EXPECT_GOLDEN(refusal({{"max_position_embeddings", 40000}}));
  EXPECT_THAT(refusal({{"type_vocab_size", -1}}), HasSubstr("'type_vocab_size' is -1"));
}

TEST(DebertaConfig, DerivesThePoolersSizeFromAnOverriddenOne) {
  const ModelConfig config = override_model_config(
      default_model_config("deberta-v2"), {{"hidden_size", 64}, {"num_attention_heads", 4}});
  EXPECT_EQ(config.encoder.pooler_hidden_size, 64);
}

}  // namespace
}  // namespace finetune
