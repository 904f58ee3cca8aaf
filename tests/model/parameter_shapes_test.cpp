// SPDX-License-Identifier: MIT
#include "finetune/model/parameter_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "support/kept_bytes.h"

namespace finetune {
namespace {

TEST(LossRowsPerChunk, AreMoreInCausalModels) {
  ModelConfig config;
  config.vocab_size = 49152;
  EXPECT_EQ(loss_rows_per_chunk(config, 128), 128);
  config.model_type = "gpt2";
  EXPECT_EQ(loss_rows_per_chunk(config, 128), 256);
  EXPECT_EQ(loss_rows_per_chunk(config, 32), 64);
  config.vocab_size = 262144;
  EXPECT_EQ(loss_rows_per_chunk(config, 128), 128);
  config.vocab_size = 500;
  EXPECT_EQ(loss_rows_per_chunk(config, 128), 512);
}

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
    const bool lacks_heads =
        type == "eurobert" || type == "nomic_bert" || type == "gte" || type == "roformer";
    if (is_causal(default_model_config(type)) || lacks_heads) continue;
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny(type);
      config.tie_word_embeddings = tied;
      EXPECT_EQ(foretold(config, std::nullopt), made(*make_model(std::nullopt, config, 1, cpu)))
          << type;
    }
    for (const bool tied : {true, false}) {
      ModelConfig config = tiny(type);
      config.tie_word_embeddings = tied;
      if (!has_next_sentence_head(config)) continue;
      EXPECT_EQ(foretold(config, Head::kPretraining),
                made(*make_model(Head::kPretraining, config, 1, cpu)))
          << type;
    }
    ModelConfig config = tiny(type);
    config.use_bias = type != "big_bird";
    for (const Head head : {Head::kSequenceClassification, Head::kMultipleChoice,
                            Head::kTokenClassification, Head::kQuestionAnswering}) {
      EXPECT_EQ(foretold(config, head), made(*make_model(head, config, 1, cpu)))
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

int64_t kept_of_layer(const ModelConfig& config, int64_t tokens, const ModelOptions& options) {
  return kept_bytes(with_layers(config, 2), tokens, options) -
         kept_bytes(with_layers(config, 1), tokens, options);
}

TEST(KeptForBackward, IsMeasuredOnTheModelItself) {
  for (const char* type : {"bert", "roberta", "xlm-roberta", "big_bird"}) {
    ModelConfig config = default_model_config(type);
    config.hidden_size = 32;
    config.intermediate_size = 80;
    config.num_attention_heads = 2;
    constexpr int64_t kTokens = 24;
    for (const Precision precision : {Precision::kFloat32, Precision::kBFloat16}) {
      const int64_t bytes = precision == Precision::kFloat32 ? 4 : 2;
      const int64_t hidden = kTokens * config.hidden_size * bytes;
      const int64_t intermediate = kTokens * config.intermediate_size * bytes;
      const auto of_layer = [&](bool selective) {
        return kept_of_layer(config, kTokens,
                             {.precision = precision,
                              .checkpointing = {.enabled = selective, .selective = selective}});
      };
      // Input, query, key, value, context, the two sums before the norms and the first product;
      // without recomputation also the first norm's output and the activation.
      EXPECT_EQ(of_layer(true), 7 * hidden + intermediate) << type;
      EXPECT_EQ(of_layer(false), 8 * hidden + 2 * intermediate) << type;
    }
  }
}

// What a decoder's layer keeps of each token: the residual stream before its halves in float32;
// queries and keys as they are attended with, and before their norms where they have any; values
// and context; gate and product of the feed-forward network. Other norms, and what the network's
// last matrix reads, are computed again.
TEST(KeptForBackward, OfADecoderLeavesOutWhatIsComputedAgain) {
  constexpr int64_t kTokens = 24;
  for (const auto& [type, normed] :
       {std::pair("llama", false), std::pair("qwen2", false), std::pair("qwen3", true)}) {
    nlohmann::ordered_json keys = {{"num_hidden_layers", 2},   {"hidden_size", 32},
                                   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                                   {"intermediate_size", 80},  {"vocab_size", 50}};
    if (normed) keys["head_dim"] = 16;
    const ModelConfig config = override_model_config(default_model_config(type), keys);
    const int64_t size = normed ? 16 : 8;
    for (const Precision precision : {Precision::kFloat32, Precision::kBFloat16}) {
      const int64_t bytes = precision == Precision::kFloat32 ? 4 : 2;
      const int64_t heads = (normed ? 3 : 2) * (4 + 2);
      const int64_t token = 2 * 32 * 4 + heads * size * bytes + 2 * 80 * bytes;
      for (const bool selective : {false, true}) {
        const ModelOptions options{.precision = precision,
                                   .checkpointing = {.enabled = selective, .selective = selective}};
        EXPECT_EQ(kept_of_layer(config, kTokens, options), kTokens * token) << type;
      }
    }
  }
}

constexpr int64_t kTokens = 24;
constexpr int64_t kHidden = 32;
constexpr int64_t kIntermediate = 80;

ModelConfig small(const std::string& type) {
  if (type == "gpt2") {
    return override_model_config(
        default_model_config(type),
        {{"n_layer", 2}, {"n_embd", kHidden}, {"n_head", 2}, {"n_inner", kIntermediate}});
  }
  const ModelConfig config = default_model_config(type);
  nlohmann::ordered_json keys = {{"num_hidden_layers", 2},
                                 {"hidden_size", kHidden},
                                 {"num_attention_heads", 2},
                                 {"intermediate_size", kIntermediate}};
  if (is_causal(config) && type != "gpt_neox" && type != "modernbert-decoder") {
    keys["num_key_value_heads"] = 2;
  }
  if (type == "gemma3n_text") keys["num_kv_shared_layers"] = 0;
  return override_model_config(config, keys);
}

TEST(ParameterShapes, TellEmbeddingsByTheirRole) {
  for (const std::string& type : model_types()) {
    const ModelConfig config = small(type);
    std::vector<std::string> words;
    for (const ParameterShape& shape : parameter_shapes(config, std::nullopt)) {
      if (shape.role == ParameterRole::kWordEmbedding) words.push_back(shape.name);
      // transformers' own names of torch.nn.Embedding.
      const bool is_embedding = shape.name.ends_with("_embeddings.weight") ||
                                shape.name.ends_with(".embed_tokens.weight") ||
                                shape.name.ends_with(".embed_tokens_per_layer.weight") ||
                                shape.name.ends_with(".embed_in.weight") ||
                                shape.name.ends_with(".embed_positions.weight") ||
                                shape.name.ends_with(".relative_attention_bias.weight") ||
                                shape.name.ends_with(".wte.weight") ||
                                shape.name.ends_with(".wpe.weight");
      const bool is_looked_up = !is_ordinary(shape.role) && shape.role != ParameterRole::kConstant;
      EXPECT_EQ(is_looked_up, is_embedding) << shape.name;
    }
    EXPECT_THAT(words, ::testing::SizeIs(1)) << type;
  }
}

}  // namespace
}  // namespace finetune
