// SPDX-License-Identifier: MIT
#include "finetune/model/parameter_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

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
    if (is_causal(default_model_config(type))) continue;  // no such heads
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
      const KeptBytes all =
          kept_for_backward(config, std::nullopt, kTokens, {.precision = precision});
      const KeptBytes some = kept_for_backward(
          config, std::nullopt, kTokens,
          {.precision = precision, .checkpointing = {.enabled = true, .selective = true}});
      // Input, query, key, value, context, the two sums before the norms and the first product;
      // without recomputation also the first norm's output and the activation.
      EXPECT_EQ(some.layer, 7 * hidden + intermediate) << type;
      EXPECT_EQ(all.layer, 8 * hidden + 2 * intermediate) << type;
      // The sum of the embeddings in float32, and a few values per token.
      const int64_t sum = kTokens * config.hidden_size * 4;
      EXPECT_GE(all.embeddings, sum) << type;
      EXPECT_LE(all.embeddings, sum + kTokens * 32) << type;
      EXPECT_EQ(some.embeddings, all.embeddings) << type;
      EXPECT_EQ(all.layer_parameters, 4 * 32 * 32 + 2 * 32 * 80 + 80 + 9 * 32) << type;
    }
  }
}

// The dry run has one and two layers; the model's lists with an entry per layer must not matter.
TEST(KeptForBackward, IsMeasuredOfDecodersWhoseLayersDiffer) {
  for (const char* type : {"gemma2", "gemma3_text", "mistral", "qwen3", "smollm3"}) {
    for (const int64_t layers : {1, 6}) {
      nlohmann::ordered_json keys = {{"num_hidden_layers", layers}, {"hidden_size", 32},
                                     {"num_attention_heads", 4},    {"num_key_value_heads", 2},
                                     {"intermediate_size", 80},     {"vocab_size", 50},
                                     {"sliding_window", 8},         {"pad_token_id", 1}};
      if (std::string(type) != "smollm3") keys["head_dim"] = 8;
      const ModelConfig config = override_model_config(default_model_config(type), keys);
      const KeptBytes kept = kept_for_backward(config, std::nullopt, 24, {});
      EXPECT_GT(kept.layer, 2 * 24 * 80 * 4) << type;
      int64_t of_layers = 0;
      for (const ParameterShape& shape : parameter_shapes(config, std::nullopt)) {
        if (shape.name.find(".layers.") != std::string::npos) of_layers += shape.count();
      }
      EXPECT_EQ(of_layers, layers * kept.layer_parameters) << type;
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
        const KeptBytes kept =
            kept_for_backward(config, std::nullopt, kTokens,
                              {.precision = precision,
                               .checkpointing = {.enabled = selective, .selective = selective}});
        EXPECT_EQ(kept.layer, kTokens * token) << type;
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
  if (is_causal(config)) keys["num_key_value_heads"] = 2;
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
                                shape.name.ends_with(".wte.weight") ||
                                shape.name.ends_with(".wpe.weight");
      EXPECT_EQ(!is_ordinary(shape.role), is_embedding) << shape.name;
    }
    EXPECT_THAT(words, ::testing::SizeIs(1)) << type;
  }
}

nn::Scratch scratch_of(const ModelConfig& config, int64_t length,
                       const nn::Scratch& where = {.threads = 1}) {
  return kept_for_backward(config, std::nullopt, length, {.precision = Precision::kBFloat16}, where)
      .scratch;
}

TEST(Scratch, OfALayerWhoseNormsComeLastIsOnlyWhatIsNotKept) {
  const nn::Scratch scratch = scratch_of(small("bert"), kTokens);
  EXPECT_EQ(scratch.stream, kTokens * kHidden * 2);
  EXPECT_EQ(scratch.activation, kTokens * kIntermediate * 2);
  EXPECT_EQ(scratch.forward, 0);
  EXPECT_EQ(scratch.backward, 0);
  EXPECT_EQ(scratch.rebuilt, kTokens * kIntermediate * 2);
  EXPECT_EQ(scratch.unkept, kTokens * (4 * kHidden + kIntermediate) * 2);
  EXPECT_EQ(scratch.matrix, kHidden * kIntermediate);
  EXPECT_EQ(scratch.factors, kTokens * (kHidden + kIntermediate));
  EXPECT_EQ(scratch.sums, 9 * kHidden + kIntermediate);
  EXPECT_EQ(scratch.heads, 2);
  EXPECT_EQ(scratch.block, 0);
}

TEST(Scratch, OfADecoderHasTheStreamInFloat32AndTheGatedProduct) {
  const nn::Scratch scratch = scratch_of(small("llama"), kTokens);
  EXPECT_EQ(scratch.stream, kTokens * kHidden * 4);
  EXPECT_EQ(scratch.forward, kTokens * (2 * kHidden * 4 + 3 * kIntermediate * 2));
  EXPECT_EQ(scratch.backward, kTokens * kIntermediate * 2) << "SiLU has a kernel on the CPU";
  EXPECT_EQ(scratch_of(small("llama"), kTokens, {.table = kernels::KernelTable::kCuda}).backward,
            kTokens * kIntermediate * 2);
  EXPECT_EQ(scratch_of(small("llama"), kTokens, {.table = kernels::KernelTable::kPlain}).backward,
            4 * kTokens * kIntermediate * 2);
  const nn::Scratch plain = scratch_of(small("gpt2"), kTokens);
  EXPECT_EQ(plain.forward, kTokens * (2 * kHidden * 4 + kIntermediate * 2));
  EXPECT_EQ(plain.backward, kTokens * kIntermediate * 2);
}

TEST(Scratch, CountsAFusedMatrixWhole) {
  EXPECT_EQ(scratch_of(small("phi3"), kTokens).matrix, 2 * kHidden * kIntermediate);
  EXPECT_EQ(scratch_of(small("modernbert"), kTokens).factors,
            kTokens * (kHidden + 2 * kIntermediate));
}

TEST(Scratch, OfDisentangledAttentionIsThatOfTheHeadsAtOnce) {
  ModelConfig config = small("deberta-v2");
  EXPECT_EQ(scratch_of(config, kTokens).by_head, 0);
  config.encoder.relative_attention = true;
  config.encoder.pos_att_type = {"c2p", "p2c"};
  const int64_t one = scratch_of(config, kTokens).by_head;
  EXPECT_EQ(one, 12 * kTokens * kTokens * 4 + 8 * kTokens * kHidden * 4);
  const int64_t head = 12 * kTokens * kTokens * 4;
  EXPECT_EQ(scratch_of(config, kTokens, {.threads = 16}).by_head - one, head) << "two heads";
  const auto device = scratch_of(config, kTokens, {.table = kernels::KernelTable::kPlain});
  EXPECT_EQ(device.by_head, 2 * 5 * kTokens * kTokens * 4 + 8 * kTokens * kHidden * 4);
  EXPECT_EQ(device.sequences_at_once, (int64_t{16} << 20) / (2 * kTokens * kTokens * 4));
}

TEST(Scratch, TellsTheBlocksOfSparseAttention) {
  ModelConfig config = small("big_bird");
  config.max_position_embeddings = 4096;
  EXPECT_EQ(scratch_of(config, 4096).block, config.block_size);
  EXPECT_EQ(scratch_of(config, 64).block, 0) << "so short a row has full attention";
}

}  // namespace
}  // namespace finetune
