// SPDX-License-Identifier: MIT
// Compares the fused passes with the reference: autograd over torch's operators.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "finetune/kernels/block_attention.h"
#include "finetune/model/frozen.h"
#include "finetune/model/model.h"
#include "finetune/task/words_loss.h"

namespace finetune {
namespace {

const c10::Device kFusedDevice{c10::kCPU};
constexpr DropoutStream kDropout{.seed = 5, .update = 3, .first_position = 8};

// As in transformers.
bool has_head(const std::string& type, Head head) {
  if (type == "roformer") return head != Head::kMultipleChoice;
  return (type != "eurobert" && type != "nomic_bert" && type != "gte") ||
         (head != Head::kMultipleChoice && head != Head::kQuestionAnswering);
}

ModelConfig tiny(const std::string& type, double dropout) {
  ModelConfig config = default_model_config(type);
  config.vocab_size = 67;
  config.hidden_size = 24;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 3;
  config.intermediate_size = 40;
  config.max_position_embeddings = 32;
  config.type_vocab_size = 2;
  config.pad_token_id = 1;
  if (type == "eurobert") {
    config.decoder.pad_token_id = 1;
    config.decoder.num_key_value_heads = 3;
    config.decoder.head_dim = 8;
    config.decoder.attention_bias = config.decoder.mlp_bias = true;
    config.decoder.attention_dropout = dropout;
  }
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout;
  config.initializer_range = 0.2;  // else every gradient is about 0
  if (type == "modernbert") {      // layers 1 and 2 attend to two tokens on each side
    config.decoder.attention_dropout = dropout;
    config.encoder.local_attention = 4;
    config.encoder.mlp_dropout = config.encoder.embedding_dropout = dropout;
    config.classifier_dropout = dropout;
  }
  if (type == "nomic_bert" || type == "gte") config.decoder.head_dim = 8;
  if (type == "electra" || type == "roformer") config.encoder.embedding_size = 12;
  if (type == "deberta-v2") {  // distances from 2 on share rows
    config.type_vocab_size = 0;
    config.encoder.relative_attention = config.encoder.share_att_key.emplace(true);
    config.encoder.position_buckets = 4;
    config.encoder.pos_att_type = {"c2p", "p2c"};
    config.encoder.norm_rel_ebd = "layer_norm";
    config.encoder.position_biased_input = false;
    config.encoder.pooler_dropout = dropout;
  }
  return config;
}

ModelInput input_of(bool dropout) {
  at::manual_seed(1);
  Tensor ids = at::randint(3, 67, {4, 11}, at::kLong);
  ids[1].narrow(0, 7, 4).fill_(1);
  ModelInput input{.input_ids = ids, .attention_mask = ids.ne(1)};
  if (dropout) input.dropout = kDropout;
  return input;
}

// The same with an explicit mask, which has a gap.
ModelInput unpadded(ModelInput input) {
  input.input_ids[3].narrow(0, 8, 3).fill_(1);
  input.attention_mask = input.input_ids.ne(1);
  input.attention_mask[2][4] = false;
  const auto layout = make_token_layout({11, 7, 11, 8}, 11, kFusedDevice);
  layout->mask = input.attention_mask.flatten().index_select(0, layout->cells).view({1, 1, 1, 37});
  input.layout = layout;
  return input;
}

const Tensor kPositions = at::tensor({0, 3, 12, 13, 25, 40}, at::kLong);
const Tensor kLabels = at::tensor({5, 60, 7, 8, 66, 3}, at::kLong);

struct Result {
  double loss = 0.0;
  std::vector<Tensor> gradients = {};
};

Result train_on(const ModelInput& input, const ModelConfig& config, const ModelOptions& options,
                double scale = 0.25, double smoothing = 0.1) {
  const auto model = make_model(std::nullopt, config, 7, kFusedDevice, options);
  const Tensor sum = words_loss(*model, input, kPositions, kLabels,
                                {.label_smoothing_factor = smoothing, .gradient_scale = scale});
  (sum * scale).backward();
  Result result{.loss = sum.item<double>()};
  for (const Parameter& p : model->store().parameters()) {
    result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
  }
  return result;
}

Result train(const ModelConfig& config, const ModelOptions& options, double scale = 0.25,
             double smoothing = 0.1) {
  return train_on(input_of(true), config, options, scale, smoothing);
}

void expect_near(const Result& a, const Result& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * std::abs(b.loss));
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  // A key's bias shifts all scores of a query by the same amount, so its gradient is 0 up to
  // rounding, which is proportional to the other gradients.
  double largest = 0.0;
  for (const Tensor& gradient : b.gradients) {
    if (gradient.defined()) {
      largest = std::max(largest, gradient.to(at::kFloat).norm().item<double>());
    }
  }
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << i;
    if (!b.gradients[i].defined()) continue;
    const double norm = b.gradients[i].to(at::kFloat).norm().item<double>();
    const double difference =
        (a.gradients[i].to(at::kFloat) - b.gradients[i].to(at::kFloat)).norm().item<double>();
    EXPECT_LE(difference, tolerance * (norm + 0.02 * largest)) << "parameter " << i;
  }
}

bool equal_bits(const Result& a, const Result& b) {
  bool equal = a.loss == b.loss;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined()) equal = equal && a.gradients[i].equal(b.gradients[i]);
  }
  return equal;
}

class FusedModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, FusedModel,
                         testing::Values("roberta", "bert", "xlm-roberta", "big_bird", "modernbert",
                                         "deberta-v2", "distilbert", "electra", "ernie", "mpnet",
                                         "eurobert", "nomic_bert", "gte", "xlm-roberta-xl",
                                         "roformer"),
                         [](const auto& shown) {
                           std::string name = shown.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(FusedModel, HasTheReadableModelsLossAndGradients) {
  for (const double dropout : {0.0, 0.2}) {
    const ModelConfig config = tiny(GetParam(), dropout);
    expect_near(train(config, {.fused = true}), train(config, {}), 2e-5);
  }
}

TEST_P(FusedModel, HasTheReadableModelsLogits) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  const c10::NoGradGuard no_grad;
  const Tensor fused = make_model(std::nullopt, config, 7, kFusedDevice, {.fused = true})
                           ->logits(input_of(false), kPositions);
  const Tensor readable =
      make_model(std::nullopt, config, 7, kFusedDevice)->logits(input_of(false), kPositions);
  EXPECT_TRUE(at::allclose(fused, readable, 1e-4, 1e-5));
}

// kPositions are 6 of 44 tokens, or of the 37 that are no padding.
TEST_P(FusedModel, EndsItsLastLayerWithTheTokensThatAreReadAlone) {
  const auto model =
      make_model(std::nullopt, tiny(GetParam(), 0.0), 7, kFusedDevice, {.fused = true});
  const c10::NoGradGuard no_grad;
  const auto encode = [&](ModelInput input, const Tensor& positions) {
    input.read_positions = positions;
    return model->encode(input);
  };
  const Tensor all = model->encode(input_of(false)).tokens_at(kPositions);
  const Encoded read = encode(input_of(false), kPositions);
  EXPECT_EQ(read.hidden.size(1), 6);
  EXPECT_TRUE(read.tokens_at(kPositions).allclose(all, 1e-4, 1e-5));
  // Of fewer, some that nobody reads make a multiple of two, a 32nd of all.
  const Tensor three = kPositions.narrow(0, 1, 3);
  const Encoded few = encode(input_of(false), three);
  EXPECT_EQ(few.hidden.size(1), 4);
  EXPECT_TRUE(few.tokens_at(three).allclose(all.narrow(0, 1, 3), 1e-4, 1e-5));
  const ModelInput without = unpadded(input_of(false));
  const Tensor of_layout = model->encode(without).tokens_at(kPositions);
  const Encoded short_rows = encode(without, kPositions);
  EXPECT_EQ(short_rows.hidden.size(1), 6);
  EXPECT_TRUE(short_rows.tokens_at(kPositions).allclose(of_layout, 1e-4, 1e-5));
  // Most tokens: all are computed.
  EXPECT_FALSE(encode(input_of(false), at::arange(40, at::kLong)).read.defined());
  EXPECT_THROW((void)encode(input_of(false), at::tensor({3, 3, 12}, at::kLong)), std::logic_error);
}

TEST_P(FusedModel, HasTheReadableModelsGradientsUnderEveryHead) {
  for (const Head head : {Head::kSequenceClassification, Head::kMultipleChoice,
                          Head::kTokenClassification, Head::kQuestionAnswering}) {
    if (!has_head(GetParam(), head)) continue;
    ModelConfig config = tiny(GetParam(), 0.1);
    config.sep_token_id = 2;
    const auto gradients = [&](const ModelOptions& options) {
      const auto model = make_model(head, config, 7, kFusedDevice, options);
      const Tensor sum = model->logits(input_of(true)).tanh().sum();
      sum.backward();
      Result result{.loss = sum.item<double>()};
      for (const Parameter& p : model->store().parameters()) {
        result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
      }
      return result;
    };
    expect_near(gradients({.fused = true}), gradients({}), 5e-5);
  }
}

// The reference model computes the padding.
TEST_P(FusedModel, HasTheSameLossAndGradientsWithoutThePadding) {
  for (const double dropout : {0.0, 0.2}) {
    const ModelConfig config = tiny(GetParam(), dropout);
    const ModelInput input = unpadded(input_of(true));
    expect_near(train_on(input, config, {.fused = true}), train_on(input, config, {}), 2e-5);
  }
}

TEST_P(FusedModel, HasTheSameGradientsWithoutThePaddingUnderEveryHead) {
  for (const Head head : {Head::kSequenceClassification, Head::kMultipleChoice,
                          Head::kTokenClassification, Head::kQuestionAnswering}) {
    if (!has_head(GetParam(), head)) continue;
    ModelConfig config = tiny(GetParam(), 0.1);
    config.sep_token_id = 2;
    const ModelInput input = unpadded(input_of(true));
    const auto gradients = [&](const ModelOptions& options) {
      const auto model = make_model(head, config, 7, kFusedDevice, options);
      Tensor logits = model->logits(input).tanh();
      if (head == Head::kTokenClassification) logits = logits * input.attention_mask.unsqueeze(-1);
      const Tensor sum = logits.sum();
      sum.backward();
      Result result{.loss = sum.item<double>()};
      for (const Parameter& p : model->store().parameters()) {
        result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
      }
      return result;
    };
    expect_near(gradients({.fused = true}), gradients({}), 5e-5);
  }
}

TEST_P(FusedModel, RecomputingWithoutPaddingChangesNoBit) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  const ModelInput input = unpadded(input_of(true));
  const Result plain = train_on(input, config, {.fused = true});
  EXPECT_TRUE(
      equal_bits(train_on(input, config,
                          {.fused = true, .checkpointing = {.enabled = true, .every_n_layers = 2}}),
                 plain));
  EXPECT_TRUE(
      equal_bits(train_on(input, config,
                          {.fused = true, .checkpointing = {.enabled = true, .selective = true}}),
                 plain));
}

TEST_P(FusedModel, RecomputingChangesNoBit) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  const Result plain = train(config, {.fused = true});
  EXPECT_TRUE(
      equal_bits(train(config, {.fused = true, .checkpointing = {.enabled = true}}), plain));
  EXPECT_TRUE(equal_bits(
      train(config, {.fused = true, .checkpointing = {.enabled = true, .every_n_layers = 2}}),
      plain));
  EXPECT_TRUE(equal_bits(
      train(config, {.fused = true,
                     .checkpointing = {.enabled = true, .every_n_layers = 5, .offload = true}}),
      plain));
  EXPECT_TRUE(equal_bits(
      train(config, {.fused = true, .checkpointing = {.enabled = true, .selective = true}}),
      plain));
}

TEST_P(FusedModel, HalfPrecisionStaysNearFloat32) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  const Result exact = train(config, {.fused = true});
  // 11 and 8 significant bits; errors of a few units accumulate over three layers.
  expect_near(train(config, {.fused = true, .precision = Precision::kFloat16}), exact, 0.01);
  expect_near(train(config, {.fused = true, .precision = Precision::kBFloat16}), exact, 0.08);
  EXPECT_FALSE(equal_bits(train(config, {.fused = true, .precision = Precision::kFloat16}), exact));
}

TEST_P(FusedModel, OtherFormatsStayNearFloat32) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  const Result exact = train(config, {.fused = true});
  expect_near(train(config, {.fused = true, .weights = WeightFormat::kSplit}), exact, 2e-3);
  expect_near(train(config, {.fused = true, .weights = WeightFormat::kBFloat16}), exact, 0.05);
  expect_near(train(config, {.fused = true, .gradients = GradientFormat::kBFloat16}), exact, 0.01);
}

TEST(FusedModelOptions, OtherActivationsAreDifferentiated) {
  for (const char* name : {"relu", "gelu_new", "silu"}) {
    ModelConfig config = tiny("bert", 0.1);
    config.hidden_act = name;
    expect_near(train(config, {.fused = true}), train(config, {}), 5e-5);
  }
}

TEST(FusedModelOptions, UntiedDecodersHaveGradientsOfTheirOwn) {
  ModelConfig config = tiny("bert", 0.1);
  config.tie_word_embeddings = false;
  expect_near(train(config, {.fused = true}), train(config, {}), 2e-5);
}

TEST(FusedModelOptions, TrainsOverBlocksAsTheReadableModelDoes) {
  for (const char* compat : {"", "huggingface"}) {
    ModelConfig config = tiny("big_bird", 0.1);
    config.attention_type = "block_sparse";
    config.block_size = 1;  // full attention up to 7 tokens, input_of() has 11
    config.num_random_blocks = 1;
    if (*compat != 0) config.bigbird_compat = compat;
    const Result readable = train(config, {});
    const int64_t before = count_block_sparse_passes();
    const Result fused = train(config, {.fused = true});
    EXPECT_EQ(count_block_sparse_passes() - before, config.num_hidden_layers);
    expect_near(fused, readable, 2e-5);
    for (const bool selective : {false, true}) {
      const Result again =
          train(config,
                {.fused = true,
                 .checkpointing = {.enabled = true, .every_n_layers = 2, .selective = selective}});
      EXPECT_EQ(again.loss, fused.loss);
      for (size_t i = 0; i < fused.gradients.size(); ++i) {
        if (!fused.gradients[i].defined()) continue;
        EXPECT_TRUE(again.gradients[i].equal(fused.gradients[i])) << i;
      }
    }
  }
}

// Frozen parameters get no gradient, and those of the others keep their bits: whatever is frozen,
// and whatever is recomputed.
TEST_P(FusedModel, FrozenParametersChangeNoOtherGradient) {
  const ModelConfig config = tiny(GetParam(), 0.1);
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"embeddings", "layers?.[01]"},  // the lower half
        {"layers?.1"},                                           // one in the middle
        {".*weight"},                                            // biases alone
        {".*bias"},
        {"layers?", "embeddings", "rel_embeddings"},  // the head and norms outside the layers
        {".*[Nn]orm", "attention", "attn"}}) {
    for (ModelOptions options :
         {ModelOptions{.fused = true},
          ModelOptions{.fused = true, .checkpointing = {.enabled = true, .every_n_layers = 2}},
          ModelOptions{.fused = true, .checkpointing = {.enabled = true, .selective = true}},
          ModelOptions{.fused = true, .precision = Precision::kBFloat16}}) {
      const Result everything = train(config, options);
      options.freeze = freeze;
      const auto model = make_model(std::nullopt, config, 7, kFusedDevice, options);
      const Tensor sum = words_loss(*model, input_of(true), kPositions, kLabels,
                                    {.label_smoothing_factor = 0.1, .gradient_scale = 0.25});
      (sum * 0.25).backward();
      EXPECT_EQ(sum.item<double>(), everything.loss);
      const std::vector<Parameter>& parameters = model->store().parameters();
      const FrozenParameters frozen(freeze);
      EXPECT_LT(model->trained_weights().size(), parameters.size()) << freeze.front();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Parameter& parameter = parameters[i];
        const bool is_frozen =
            frozen.has(parameter.name()) || parameter.role() == ParameterRole::kConstant;
        EXPECT_EQ(parameter.format.trainable, !is_frozen);
        ASSERT_EQ(parameter.gradient.defined(), !is_frozen && everything.gradients[i].defined())
            << parameter.name() << " with " << freeze.front();
        if (!parameter.gradient.defined()) continue;
        EXPECT_TRUE(parameter.gradient.equal(everything.gradients[i]))
            << parameter.name() << " with " << freeze.front();
      }
    }
  }
}

TEST_P(FusedModel, EveryUsedParameterIsCompletedOnce) {
  for (const bool tied : {true, false}) {
    ModelConfig config = tiny(GetParam(), 0.1);
    config.tie_word_embeddings = tied;
    const auto model = make_model(std::nullopt, config, 7, kFusedDevice, {.fused = true});
    std::vector<std::string> reported;
    model->store().gradients().on_complete([&](Parameter& p) { reported.push_back(p.name()); });
    words_loss(*model, input_of(true), kPositions, kLabels, {}).backward();
    std::vector<std::string> expected;
    for (const Parameter& p : model->store().parameters()) {
      if (p.gradient.defined()) expected.push_back(p.name());
    }
    std::sort(reported.begin(), reported.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(reported, expected);
  }
}

// Several questions may be asked at one token.
TEST(FusedDecision, ReadsATokenSeveralTimes) {
  const auto model =
      make_model(Head::kDecision, tiny("eurobert", 0.0), 7, kFusedDevice, {.fused = true});
  const Tensor repeated = at::tensor({3, 3, 12, 25, 25, 25}, at::kLong);
  ModelInput input = input_of(false);
  const Tensor all = model->head_logits(input, model->encode(input).tokens_at(repeated), {});
  input.read_positions = at::tensor({3, 12, 25}, at::kLong);
  EXPECT_TRUE(model->logits(input, repeated).allclose(all, 1e-4, 1e-5));
}

// The layers of a laya head, over an encoder.
TEST(FusedDecision, HasTheReadableModelsGradientsAndEqualBitsWhenItRunsAgain) {
  for (const char* type : {"modernbert", "bert"}) {
    ModelConfig config = tiny(type, 0.1);
    config.laya = LayaConfig{.head_layers = 2, .dropout = 0.2};
    ModelInput input = input_of(true);
    input.question_types = at::tensor({0, 2, 1, 2}, at::kLong);
    bool computes_all = false;
    const auto gradients = [&](const ModelInput& of, const ModelOptions& options) {
      const auto model = make_model(Head::kDecision, config, 7, kFusedDevice, options);
      const Tensor logits = computes_all
                                ? model->head_logits(of, model->encode(of).tokens_at(kPositions))
                                : model->logits(of, kPositions);
      const Tensor sum = logits.tanh().sum();
      sum.backward();
      Result result{.loss = sum.item<double>()};
      for (const Parameter& p : model->store().parameters()) {
        result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
      }
      return result;
    };
    const Result fused = gradients(input, {.fused = true});
    expect_near(fused, gradients(input, {}), 5e-5);
    EXPECT_TRUE(
        equal_bits(gradients(input, {.fused = true, .checkpointing = {.enabled = true}}), fused));
    // The end of the last layer is computed for the tokens that are read.
    computes_all = true;
    expect_near(gradients(input, {.fused = true}), fused, 5e-5);
    const ModelInput without = unpadded(input);  // which changes its ids
    const Result all = gradients(without, {.fused = true});
    computes_all = false;
    expect_near(gradients(without, {.fused = true}), all, 5e-5);
    expect_near(gradients(without, {.fused = true}), gradients(without, {}), 5e-5);
    // Types are read, and what no loss reads has no gradient.
    const double of_types = gradients(input, {.fused = true}).loss;
    input.question_types = at::tensor({0, 0, 0, 0}, at::kLong);
    EXPECT_NE(gradients(input, {.fused = true}).loss, of_types);
    const auto model = make_model(Head::kDecision, config, 7, kFusedDevice, {.fused = true});
    for (size_t i = 0; i < model->weights().size(); ++i) {
      const std::string& name = model->weights()[i].name();
      const bool is_unused = name.starts_with("act_head.") || name == "temperature" ||
                             name.find("pooler") != std::string::npos;
      EXPECT_EQ(fused.gradients[i].defined() && fused.gradients[i].abs().sum().item<double>() > 0,
                !is_unused)
          << name;
    }
  }
}

}  // namespace
}  // namespace finetune
