// SPDX-License-Identifier: MIT
#include "finetune/model/model.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

using testing::ElementsAre;

ModelConfig tiny() {
  ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.intermediate_size = 32;
  config.max_position_embeddings = 20;
  config.type_vocab_size = 1;
  return config;
}

const c10::Device kCpu(c10::kCPU);

Tensor ids(const std::vector<int64_t>& values, int64_t rows) {
  return at::tensor(values, at::kLong).view({rows, -1});
}

TEST(LanguageModel, NamesItsParametersAsTransformersDoesAndInItsOrder) {
  ModelConfig config = tiny();
  config.num_hidden_layers = 1;
  std::vector<std::string> names;
  const auto model = make_model(std::nullopt, config, 1, kCpu);
  for (const NamedTensor& p : model->parameters()) names.push_back(p.name);
  const std::string layer = "roberta.encoder.layer.0.";
  EXPECT_THAT(
      names,
      ElementsAre("roberta.embeddings.word_embeddings.weight",
                  "roberta.embeddings.token_type_embeddings.weight",
                  "roberta.embeddings.LayerNorm.weight", "roberta.embeddings.LayerNorm.bias",
                  "roberta.embeddings.position_embeddings.weight",
                  layer + "attention.self.query.weight", layer + "attention.self.query.bias",
                  layer + "attention.self.key.weight", layer + "attention.self.key.bias",
                  layer + "attention.self.value.weight", layer + "attention.self.value.bias",
                  layer + "attention.output.dense.weight", layer + "attention.output.dense.bias",
                  layer + "attention.output.LayerNorm.weight",
                  layer + "attention.output.LayerNorm.bias", layer + "intermediate.dense.weight",
                  layer + "intermediate.dense.bias", layer + "output.dense.weight",
                  layer + "output.dense.bias", layer + "output.LayerNorm.weight",
                  layer + "output.LayerNorm.bias", "lm_head.bias", "lm_head.dense.weight",
                  "lm_head.dense.bias", "lm_head.layer_norm.weight", "lm_head.layer_norm.bias"));
}

TEST(LanguageModel, StartsFromTheSeedAlone) {
  const auto a = make_model(std::nullopt, tiny(), 7, kCpu);
  const auto b = make_model(std::nullopt, tiny(), 7, kCpu);
  const auto c = make_model(std::nullopt, tiny(), 8, kCpu);
  for (size_t i = 0; i < a->parameters().size(); ++i) {
    EXPECT_TRUE(a->parameters()[i].tensor.equal(b->parameters()[i].tensor));
  }
  EXPECT_FALSE(a->parameters()[0].tensor.equal(c->parameters()[0].tensor));
}

TEST(LanguageModel, IsInitialisedAsTransformersDoes) {
  ModelConfig config = tiny();
  config.hidden_size = 64;
  config.vocab_size = 500;
  const auto model = make_model(std::nullopt, config, 7, kCpu);
  for (const NamedTensor& p : model->parameters()) {
    const Tensor value = p.tensor.detach();
    if (p.name.find("bias") != std::string::npos) {
      EXPECT_EQ(value.abs().max().item<float>(), 0.0F) << p.name;
    } else if (p.name.find("orm.weight") != std::string::npos) {
      EXPECT_TRUE(value.eq(1).all().item<bool>()) << p.name;
    } else if (value.numel() > 1000) {
      EXPECT_NEAR(value.std().item<float>(), 0.02, 0.002) << p.name;
      EXPECT_NEAR(value.mean().item<float>(), 0.0, 0.002) << p.name;
    }
  }
  // row of the padding
  EXPECT_EQ(model->parameters()[0].tensor[1].abs().max().item<float>(), 0.0F);
}

// Truncated at two standard deviations; matrices that end a residual branch are smaller by the root
// of twice the number of layers.
TEST(LanguageModel, IsInitialisedAsModernBertIs) {
  ModelConfig config = default_model_config("modernbert");
  config.vocab_size = 500;
  config.pad_token_id = 1;
  config.hidden_size = 64;
  config.num_attention_heads = 4;
  config.intermediate_size = 96;
  config.num_hidden_layers = 2;
  const auto model = make_model(std::nullopt, config, 7, kCpu);
  // standard deviation of a normal distribution truncated to [-2, 2]
  constexpr double kTruncated = 0.8796;
  for (const NamedTensor& p : model->parameters()) {
    const Tensor value = p.tensor.detach();
    if (!p.name.ends_with("weight") || p.name.find("norm") != std::string::npos) continue;
    const bool ends_sum = p.name.ends_with("Wo.weight") || p.name.starts_with("head");
    const double deviation = ends_sum ? 0.01 : 0.02;
    EXPECT_NEAR(value.std().item<double>(), kTruncated * deviation, 0.05 * deviation) << p.name;
    EXPECT_LE(value.abs().max().item<double>(), 2.0 * deviation + 1e-9) << p.name;
  }
}

TEST(LanguageModel, GivesTheSameLogitsForPaddedAndUnpaddedRows) {
  const auto model = make_model(std::nullopt, tiny(), 3, kCpu);
  const Tensor alone = model->logits({ids({0, 5, 6, 2}, 1), {}, {}},
                                     at::tensor(std::vector<int64_t>{1, 2}, at::kLong));
  const Tensor mask = ids({1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1}, 2).to(at::kBool);
  const Tensor padded = model->logits({ids({0, 5, 6, 2, 1, 1, 0, 9, 9, 9, 9, 2}, 2), mask, {}},
                                      at::tensor(std::vector<int64_t>{1, 2}, at::kLong));
  EXPECT_TRUE(at::allclose(alone, padded, 1e-4, 1e-6));
}

// Positions are rotary or relative, so masked padding before a text does not matter.
TEST(LanguageModel, GivesTheSameLogitsWithPaddingInFront) {
  for (const bool fused : {false, true}) {
    for (const char* type : {"modernbert", "deberta-v2"}) {
      ModelConfig config = default_model_config(type);
      config.vocab_size = 40;
      config.pad_token_id = 1;
      config.hidden_size = 16;
      config.num_attention_heads = 2;
      config.intermediate_size = 24;
      config.num_hidden_layers = 3;
      config.max_position_embeddings = 32;
      config.initializer_range = 0.3;
      config.encoder.local_attention = 4;
      config.encoder.relative_attention = true;
      config.encoder.pos_att_type = {"c2p", "p2c"};
      config.encoder.share_att_key = true;
      config.encoder.position_biased_input = false;
      const auto model = make_model(std::nullopt, config, 3, kCpu, {.fused = fused});
      const c10::NoGradGuard no_grad;
      const Tensor text = ids({0, 5, 6, 7, 8, 9, 10, 11, 12, 2}, 1);
      const Tensor padded = at::cat({ids({1, 1, 1}, 1), text}, 1);
      const Tensor expected = model->logits({text, {}, {}}, at::arange(10, at::kLong));
      const Tensor got = model->logits({padded, padded.ne(1), {}}, at::arange(3, 13, at::kLong));
      EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-5)) << type << fused;
    }
  }
}

TEST(LanguageModel, AttentionWithItsOwnDropoutAgreesWithTheFusedOneInTheMean) {
  // With a tiny probability almost nothing is dropped: both paths compute the same.
  ModelConfig config = tiny();
  config.hidden_dropout_prob = 0.0;
  config.attention_probs_dropout_prob = 1e-9;
  const auto model = make_model(std::nullopt, config, 3, kCpu);
  const Tensor input = ids({0, 5, 6, 7, 2, 1, 0, 8, 2, 1, 1, 1}, 2);
  const Tensor mask = input.ne(1);
  const Tensor positions = at::arange(12, at::kLong);
  const Tensor fused = model->logits({input, mask, {}}, positions);
  const Tensor own = model->logits({input, mask, DropoutStream{1, 2, 0}}, positions);
  EXPECT_TRUE(at::allclose(fused.narrow(0, 0, 5), own.narrow(0, 0, 5), 1e-4, 1e-6));
}

TEST(LanguageModel, DropoutChangesTheLogitsAndRepeats) {
  const auto model = make_model(std::nullopt, tiny(), 3, kCpu);
  const ModelInput input{ids({0, 5, 6, 2}, 1), {}, DropoutStream{1, 2, 0}};
  const Tensor positions = at::tensor(std::vector<int64_t>{1}, at::kLong);
  const Tensor first = model->logits(input, positions);
  EXPECT_TRUE(first.equal(model->logits(input, positions)));
  EXPECT_FALSE(first.equal(model->logits({input.input_ids, {}, {}}, positions)));
}

TEST(LoadWeights, ReportsWhatIsMissingAndWhatIsExtra) {
  const auto model = make_model(std::nullopt, tiny(), 3, kCpu);
  const LoadReport report = load_weights(
      *model, {"lm_head.bias", "roberta.pooler.dense.weight", "roberta.embeddings.position_ids"},
      [](const std::string&) { return at::ones({40}); }, "m");
  EXPECT_EQ(report.missing.size(), model->parameters().size() - 1);
  EXPECT_THAT(report.unexpected, ElementsAre("roberta.pooler.dense.weight"));
}

TEST(WeightDecay, LeavesOutBiasesAndNormalisation) {
  EXPECT_TRUE(has_weight_decay("roberta.encoder.layer.0.output.dense.weight"));
  EXPECT_TRUE(has_weight_decay("roberta.embeddings.word_embeddings.weight"));
  EXPECT_FALSE(has_weight_decay("roberta.encoder.layer.0.output.LayerNorm.weight"));
  EXPECT_FALSE(has_weight_decay("lm_head.layer_norm.weight"));
  EXPECT_FALSE(has_weight_decay("lm_head.bias"));
}

}  // namespace
}  // namespace finetune
