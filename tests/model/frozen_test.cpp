// SPDX-License-Identifier: MIT
#include "finetune/model/frozen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/error.h"
#include "finetune/model/parameter_shapes.h"
#include "support/golden.h"
#include "support/kept_bytes.h"

namespace finetune {
namespace {

TEST(FrozenParameters, AreChosenByWholeComponentsOfTheirNames) {
  const FrozenParameters frozen({"embeddings", "layer.1", "layer.2[0-3]", "LayerNorm.weight"});
  for (const char* name :
       {"bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight",
        "bert.encoder.layer.1.output.dense.bias", "bert.encoder.layer.21.output.dense.bias",
        "cls.predictions.transform.LayerNorm.weight"}) {
    EXPECT_TRUE(frozen.has(name)) << name;
  }
  for (const char* name :
       {"bert.word_embeddings.weight", "bert.encoder.layer.10.output.dense.bias",
        "bert.encoder.layer.2.output.dense.bias", "cls.predictions.transform.LayerNorm.bias",
        "bert.encoder.layers.1.dense.weight"}) {
    EXPECT_FALSE(frozen.has(name)) << name;
  }
  EXPECT_FALSE(FrozenParameters({}).has("embeddings.weight"));
}

TEST(FrozenParameters, RefuseWhatIsNoRegularExpression) {
  for (const std::string& pattern : {std::string("("), std::string("[a"), std::string(""),
                                     std::string("*"), std::string(70'000, 'a')}) {
    try {
      const FrozenParameters frozen({pattern});
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_GOLDEN(error.what());
      EXPECT_LT(std::string(error.what()).size(), 1000U);
    }
  }
}

// Kept are the activations of the layers above, and nothing below them.
TEST(FrozenParameters, BelowTheLowestTrainedOneNothingIsKept) {
  for (const char* type : {"bert", "modernbert", "llama", "gpt2"}) {
    ModelConfig config = default_model_config(type);
    config.num_hidden_layers = 4;
    config.hidden_size = 64;
    config.intermediate_size = 96;
    config.num_attention_heads = 2;
    config.decoder.num_key_value_heads = 2;
    constexpr int64_t kTokens = 16;
    const std::string layers = type == std::string("gpt2") ? "h" : "layers?";
    const auto whole = [&](const std::vector<std::string>& freeze) {
      return kept_bytes(config, kTokens, {.freeze = freeze});
    };
    const int64_t layer = kept_bytes(config, kTokens) - kept_bytes(with_layers(config, 3), kTokens);
    const std::vector<std::string> embeddings = {"embeddings", "embed_tokens", "wte", "wpe"};
    std::vector<std::string> half = embeddings;
    half.push_back(layers + ".[01]");
    const int64_t above = 2 * layer;
    const int64_t stream = kTokens * config.hidden_size * 4;
    EXPECT_GE(whole(half), above) << type;
    EXPECT_LE(whole(half), above + 3 * stream) << type;
    // An input of a frozen product is not kept.
    std::vector<std::string> biases = embeddings;
    biases.push_back(".*weight");
    if (type != std::string("bert")) continue;
    EXPECT_LT(whole(biases), 3 * whole(half) / 2);
  }
}

}  // namespace
}  // namespace finetune
