// SPDX-License-Identifier: MIT
#include "finetune/model/parameter_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace finetune {
namespace {

using Sizes = std::map<std::string, std::vector<int64_t>>;

Sizes made(const Model& model) {
  Sizes sizes;
  for (const NamedTensor& parameter : model.parameters()) {
    sizes[parameter.name] = parameter.tensor.sizes().vec();
  }
  return sizes;
}

Sizes foretold(const ModelConfig& config, std::optional<Head> head) {
  Sizes sizes;
  for (const ParameterShape& shape : parameter_shapes(config, head))
    sizes[shape.name] = shape.sizes;
  return sizes;
}

ModelConfig tiny(const std::string& type) {
  ModelConfig config = default_model_config(type);
  config.vocab_size = 30;
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 12;
  config.max_position_embeddings = 20;
  config.type_vocab_size = 2;
  config.sep_token_id = 2;
  config.id2label = {"a", "b", "c"};
  return config;
}

TEST(ParameterShapes, AreThoseOfEveryModelThatIsMade) {
  const auto cpu = c10::Device(c10::kCPU);
  for (const std::string& type : model_types()) {
    if (is_causal(default_model_config(type))) continue;  // has no such heads
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny(type);
      config.tie_word_embeddings = tied;
      EXPECT_EQ(foretold(config, std::nullopt), made(*make_language_model(config, 1, cpu))) << type;
    }
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny(type);
      config.tie_word_embeddings = tied;
      if (!has_next_sentence_head(config)) continue;
      EXPECT_EQ(foretold(config, Head::kPretraining), made(*make_pretraining_model(config, 1, cpu)))
          << type;
    }
    ModelConfig config = tiny(type);
    config.use_bias = type != "big_bird";
    for (const Head head : {Head::kSequenceClassification, Head::kMultipleChoice,
                            Head::kTokenClassification, Head::kQuestionAnswering}) {
      EXPECT_EQ(foretold(config, head), made(*make_head_model(head, config, 1, cpu)))
          << type << " with head " << static_cast<int>(head);
    }
  }
}

TEST(ParameterShapes, CountTheParametersOfKnownModels) {
  ModelConfig config;
  config.vocab_size = 52000;
  config.num_hidden_layers = 6;
  config.max_position_embeddings = 514;
  config.type_vocab_size = 1;
  int64_t count = 0;
  for (const ParameterShape& shape : parameter_shapes(config, std::nullopt)) count += shape.count();
  EXPECT_EQ(count, 83'504'416);  // EsperBERTo, as transformers counts it
}

}  // namespace
}  // namespace finetune
