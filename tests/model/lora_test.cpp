// SPDX-License-Identifier: MIT
// Models with a LoRA adapter: parameters, gradients, and what is not computed.
#include "finetune/nn/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "finetune/base/error.h"
#include "finetune/model/model.h"
#include "finetune/model/model_folder.h"
#include "finetune/model/parameter_shapes.h"
#include "finetune/nn/linear.h"
#include "finetune/task/words_loss.h"
#include "support/golden.h"
#include "support/kept_bytes.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const c10::Device kLoraDevice(c10::kCPU);
const std::vector<std::string> kDecoders = {"llama",        "llama-tied",  "llama-biased",
                                            "mistral",      "qwen2",       "qwen3",
                                            "gemma",        "gemma2",      "gemma3_text",
                                            "phi3",         "olmo2",       "smollm3",
                                            "gpt2",         "granite",     "glm4",
                                            "ernie4_5",     "starcoder2",  "arcee",
                                            "gpt_neox",     "phi",         "stablelm",
                                            "nanochat",     "lfm2",        "qwen3_5_text",
                                            "apertus",      "gemma4_text", "gemma4_text-shared",
                                            "gemma3n_text", "qwen3_moe",   "olmoe",
                                            "granitemoe",   "gpt_oss"};

ModelConfig config_of(const std::string& name, const nn::LoraConfig& lora, double dropout = 0.0) {
  ModelConfig config = read_model_config(source_dir() + "/tests/fixtures/model/" + name);
  config.initializer_range = 0.2;  // else every gradient is about 0
  config.decoder.attention_dropout = config.attention_probs_dropout_prob = dropout;
  config.decoder.resid_pdrop = config.decoder.embd_pdrop = dropout;
  config.lora = lora;
  return config;
}

ModelInput input_with(double dropout) {
  at::manual_seed(1);
  const Tensor lengths = at::tensor({11, 7, 11, 8}, at::kLong);
  ModelInput input{.input_ids = at::randint(4, 32, {4, 11}, at::kLong), .attention_mask = {}};
  input.attention_mask = at::arange(11, at::kLong).lt(lengths.unsqueeze(1));
  if (dropout > 0.0) input.dropout = DropoutStream{.seed = 5, .update = 3, .first_position = 8};
  return input;
}

const Tensor kPositions = at::tensor({0, 3, 11, 16, 25, 33, 39}, at::kLong);
const Tensor kNext = at::tensor({5, 30, 7, 8, 31, 3, 9}, at::kLong);

// B is zero at first (of an embedding, A), so that the other would have no gradient.
void draw_second_factors(Model& model) {
  at::manual_seed(9);
  for (Parameter& parameter : model.store().parameters()) {
    if (!parameter.name().ends_with("lora_B.weight") &&
        !parameter.name().ends_with("lora_embedding_A")) {
      continue;
    }
    model.store().assign(parameter, at::randn(parameter.handle.sizes()) * 0.3);
  }
}

struct Step {
  double loss = 0.0;
  std::vector<std::string> names = {};
  std::vector<Tensor> gradients = {};
};

Step step_of(const ModelConfig& config, const ModelOptions& options, double dropout = 0.0) {
  const auto model = make_model(std::nullopt, config, 7, kLoraDevice, options);
  draw_second_factors(*model);
  const Tensor sum =
      words_loss(*model, input_with(dropout), kPositions, kNext, {.gradient_scale = 0.5});
  (sum * 0.5).backward();
  Step step{.loss = sum.item<double>()};
  for (const Parameter& p : model->store().parameters()) {
    step.names.push_back(p.name());
    step.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
  }
  return step;
}

// Orders of sums differ, so gradients agree to four or five digits (of gemma2, whose scores are
// soft-capped, to 2.6e-5; of gemma4_text-shared, five layers deep, to 4.6e-5).
void expect_close(const Step& a, const Step& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * std::abs(b.loss));
  double largest = 0.0;
  for (const Tensor& gradient : b.gradients) {
    if (gradient.defined()) largest = std::max(largest, gradient.norm().item<double>());
  }
  EXPECT_GT(largest, 0.0);
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined()) << a.names[i];
    if (!a.gradients[i].defined()) continue;
    const Tensor expected = b.gradients[i].to(at::kFloat);
    const double difference = (a.gradients[i].to(at::kFloat) - expected).norm().item<double>();
    EXPECT_LE(difference, tolerance * (expected.norm().item<double>() + 0.02 * largest))
        << a.names[i];
  }
}

bool equal_bits(const Step& a, const Step& b) {
  bool equal = a.loss == b.loss;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined()) equal = equal && a.gradients[i].equal(b.gradients[i]);
  }
  return equal;
}

class LoraModel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, LoraModel, ::testing::ValuesIn(kDecoders),
                         [](const auto& shown) {
                           std::string name = shown.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(LoraModel, HasTheReadableModelsLossAndGradients) {
  for (const double dropout : {0.0, 0.2}) {
    for (const bool use_dora : {false, true}) {
      const ModelConfig config =
          config_of(GetParam(), {.r = 4, .lora_dropout = dropout, .use_dora = use_dora}, dropout);
      expect_close(step_of(config, {.fused = true}, dropout), step_of(config, {}, dropout), 6e-5);
    }
  }
}

// The magnitudes [out], the biases that train with the adapter, and nothing else.
TEST_P(LoraModel, TrainsMagnitudesAndBiasesWhereTheyAreAskedFor) {
  const ModelConfig config = config_of(GetParam(), {.r = 4, .use_dora = true, .bias = "all"});
  const Step step = step_of(config, {.fused = true});
  for (size_t i = 0; i < step.names.size(); ++i) {
    const bool trains =
        step.names[i].find(".lora_") != std::string::npos || step.names[i].ends_with("bias");
    EXPECT_EQ(step.gradients[i].defined(), trains) << step.names[i];
  }
  expect_close(step, step_of(config, {}), 4e-5);
}

// Only the factors have gradients; recomputing draws the same dropout again.
TEST_P(LoraModel, TrainsItsFactorsAloneAndRecomputesToTheSameBits) {
  const ModelConfig config =
      config_of(GetParam(), {.r = 4, .lora_dropout = 0.2, .use_dora = true}, 0.2);
  const Step kept = step_of(config, {.fused = true}, 0.2);
  for (size_t i = 0; i < kept.names.size(); ++i) {
    const bool is_factor = kept.names[i].find(".lora_") != std::string::npos;
    EXPECT_EQ(kept.gradients[i].defined(), is_factor) << kept.names[i];
  }
  EXPECT_TRUE(
      equal_bits(step_of(config, {.fused = true, .checkpointing = {.enabled = true}}, 0.2), kept));
  EXPECT_TRUE(equal_bits(
      step_of(config, {.fused = true, .checkpointing = {.enabled = true, .selective = true}}, 0.2),
      kept));
}

// PEFT's factors of all experts of a layer are two matrices; an inner module has those of the first
// stack if the second has an adapter, too.
TEST(LoraModels, OfExpertsHaveTheReadableModelsLossAndGradients) {
  for (const std::string name : {"gpt_oss", "granitemoe", "olmoe", "qwen3_moe"}) {
    for (const bool has_both : {true, false}) {
      std::vector<std::string> parameters = {"experts.gate_up_proj"};
      if (has_both) parameters.emplace_back("experts.down_proj");
      const nn::LoraConfig lora = {.r = 3,
                                   .lora_dropout = 0.0,
                                   .target_modules = {.names = {"q_proj"}},
                                   .target_parameters = parameters};
      const ModelConfig config = config_of(name, lora);
      const Step step = step_of(config, {.fused = true});
      expect_close(step, step_of(config, {}), 6e-5);
      const auto has = [&](const char* end) {
        return std::ranges::any_of(step.names, [&](const auto& one) { return one.ends_with(end); });
      };
      EXPECT_EQ(has(".experts.base_layer.lora_A.weight"), has_both);
      EXPECT_TRUE(has(".experts.lora_B.weight"));
      EXPECT_TRUE(
          equal_bits(step_of(config, {.fused = true, .checkpointing = {.enabled = true}}), step));
    }
  }
}

// PEFT would pass over weights that transformers' modules name otherwise, or find no such module.
TEST(LoraModels, SaveNoModulesWhoseWeightsFilesNameOtherwise) {
  const auto key_of = [](const char* model, const char* module) {
    try {
      (void)make_model(std::nullopt, config_of(model, {.r = 2, .modules_to_save = {module}}), 7,
                       kLoraDevice, {});
    } catch (const nn::LoraError& error) {
      return std::string(error.key());
    }
    return std::string();
  };
  for (const char* module : {"input_linear", "router", "experts", "block_sparse_moe"}) {
    EXPECT_EQ(key_of("granitemoe", module), "lora_modules_to_save") << module;
  }
  for (const char* module : {"down_proj", "experts", "mlp"}) {
    EXPECT_EQ(key_of("olmoe", module), "lora_modules_to_save") << module;
  }
  EXPECT_EQ(key_of("granitemoe", "input_layernorm"), "");
  EXPECT_EQ(key_of("olmoe", "gate"), "");
  for (const char* module : {"experts", "router", "mlp"}) {
    EXPECT_EQ(key_of("gpt_oss", module), "") << module;
  }
}

TEST(LoraModels, OfExpertsRefuseWhatPeftRefuses) {
  const auto key_of = [](nn::LoraConfig lora) {
    try {
      (void)make_model(std::nullopt, config_of("gpt_oss", lora), 7, kLoraDevice, {});
    } catch (const nn::LoraError& error) {
      return std::string(error.key());
    }
    return std::string();
  };
  const std::vector<std::string> known = {"experts.down_proj"};
  EXPECT_EQ(key_of({.lora_dropout = 0.1, .target_parameters = known}), "lora_dropout");
  EXPECT_EQ(key_of({.lora_dropout = 0.0, .use_dora = true, .target_parameters = known}),
            "use_dora");
  EXPECT_EQ(key_of({.lora_dropout = 0.0, .target_parameters = {"down_projection"}}),
            "lora_target_parameters");
  EXPECT_EQ(key_of({.lora_dropout = 0.0, .target_parameters = known}), "");
}

// The first layer's keys, which later layers read, need no gradient; its queries do.
TEST(LoraModels, OfQueriesAloneRecomputeWhereKeysAreShared) {
  const ModelConfig config =
      config_of("gemma4_text-shared", {.r = 4, .target_modules = {{"q_proj"}}});
  EXPECT_TRUE(equal_bits(step_of(config, {.fused = true, .checkpointing = {.enabled = true}}),
                         step_of(config, {.fused = true})));
}

// Adapters of all embeddings and of one kind of layer.
nn::LoraConfig with_embeddings(double dropout = 0.0) {
  return {.r = 4,
          .lora_dropout = dropout,
          .target_modules = {
              {".*(embed_tokens|embed_in|wte|wpe|q_proj|c_attn|qkv_proj|query_key_value)"}, true}};
}

TEST_P(LoraModel, OfAnEmbeddingHasTheReadableModelsGradientsAndRecomputesToTheSameBits) {
  for (const double dropout : {0.0, 0.2}) {
    const ModelConfig config = config_of(GetParam(), with_embeddings(dropout), dropout);
    const Step kept = step_of(config, {.fused = true}, dropout);
    expect_close(kept, step_of(config, {}, dropout), 4e-5);
    size_t of_embeddings = 0;
    for (size_t i = 0; i < kept.names.size(); ++i) {
      const bool is_factor = kept.names[i].find(".lora_") != std::string::npos;
      EXPECT_EQ(kept.gradients[i].defined(), is_factor) << kept.names[i];
      if (kept.names[i].find(".lora_embedding_") == std::string::npos) continue;
      ++of_embeddings;
      EXPECT_GT(kept.gradients[i].norm().item<double>(), 0.0) << kept.names[i];
    }
    EXPECT_EQ(of_embeddings, GetParam() == "gpt2" ? 4U : 2U);
    for (const ModelOptions& options :
         {ModelOptions{.fused = true, .checkpointing = {.enabled = true}},
          ModelOptions{.fused = true, .checkpointing = {.enabled = true, .selective = true}},
          ModelOptions{.fused = true}}) {
      EXPECT_TRUE(equal_bits(step_of(config, options, dropout), kept));
    }
  }
}

// A is zero; B is drawn from the normal distribution, by seed and name.
TEST_P(LoraModel, OfAnEmbeddingStartsAsItsBase) {
  ModelConfig config = config_of(GetParam(), with_embeddings());
  const ModelInput input = input_with(0.0);
  const auto with = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  const auto other = make_model(std::nullopt, config, 8, kLoraDevice, {.fused = true});
  for (const Parameter& parameter : with->store().parameters()) {
    const Tensor values = parameter.weight;
    if (parameter.name().ends_with("lora_embedding_A")) {
      EXPECT_EQ(values.abs().max().item<double>(), 0.0);
    } else if (parameter.name().ends_with("lora_embedding_B")) {
      EXPECT_NEAR(values.std().item<double>(), 1.0, 0.3);
      EXPECT_FALSE(values.equal(other->store().tensor(other->store().weight(parameter.name()))));
    }
  }
  config.lora = {};
  const auto base = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(with->logits(input, kPositions).equal(base->logits(input, kPositions)));
}

// Adding a bias after DoRA's factor of 1 rounds once more.
TEST_P(LoraModel, StartsAsItsBaseWithMagnitudesToo) {
  ModelConfig config = config_of(GetParam(), {.r = 4, .use_dora = true});
  const ModelInput input = input_with(0.0);
  const auto with = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  config.lora = {};
  const auto base = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(
      with->logits(input, kPositions).allclose(base->logits(input, kPositions), 1e-5, 1e-5));
}

TEST_P(LoraModel, StartsAsItsBase) {
  ModelConfig config = config_of(GetParam(), {.r = 4});
  const ModelInput input = input_with(0.0);
  const auto with = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  config.lora = {};
  const auto base = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(with->logits(input, kPositions).equal(base->logits(input, kPositions)));
}

// A frozen base of 16 bits computes as its values do in float32.
void expect_values_alone_to_matter(const ModelConfig& config, WeightFormat format) {
  const auto narrow = make_model(std::nullopt, config, 7, kLoraDevice,
                                 {.fused = true, .base = {.weights = format}});
  const auto wide = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  for (size_t i = 0; i < wide->weights().size(); ++i) {
    Parameter& parameter = wide->store().parameters()[i];
    wide->store().assign(parameter, narrow->store().values(narrow->weights()[i]));
    EXPECT_EQ(narrow->store().parameters()[i].weight.scalar_type(),
              parameter.format.trainable || parameter.role() == ParameterRole::kConstant
                  ? at::kFloat
                  : traits_of(format).type);
  }
  for (Model* model : {static_cast<Model*>(narrow.get()), static_cast<Model*>(wide.get())}) {
    draw_second_factors(*model);
  }
  std::vector<Tensor> gradients;
  for (Model* model : {narrow.get(), wide.get()}) {
    words_loss(*model, input_with(0.0), kPositions, kNext, {}).backward();
    for (const size_t i : model->store().trained()) {
      gradients.push_back(model->store().parameters()[i].gradient);
    }
  }
  const size_t half = gradients.size() / 2;
  for (size_t i = 0; i < half; ++i) EXPECT_TRUE(gradients[i].equal(gradients[half + i])) << i;
}

TEST_P(LoraModel, ComputesWithABaseOfSixteenBits) {
  for (const WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kFloat16}) {
    expect_values_alone_to_matter(config_of(GetParam(), {.r = 4}), format);
    expect_values_alone_to_matter(config_of(GetParam(), {.r = 4, .use_dora = true}), format);
  }
}

// Matrices of more values than are unpacked at once: their products are sums and parts of blocks'.
TEST(LoraBase, OfFourBitsIsUnpackedInBlocks) {
  ModelConfig config = config_of("llama", {.r = 4});
  config.intermediate_size = nn::kUnpackedAtOnce / config.hidden_size + 100;  // rows, then columns
  for (const Precision precision : {Precision::kFloat32, Precision::kBFloat16}) {
    const ModelOptions whole = {.fused = true, .precision = precision};
    ModelOptions packed = whole;
    packed.base = {.weights = WeightFormat::kFloat32, .matrices = WeightFormat::kNf4};
    const auto narrow = make_model(std::nullopt, config, 7, kLoraDevice, packed);
    const auto wide = make_model(std::nullopt, config, 7, kLoraDevice, whole);
    for (size_t i = 0; i < wide->weights().size(); ++i) {
      wide->store().assign(wide->store().parameters()[i],
                           narrow->store().values(narrow->weights()[i]));
    }
    Step steps[2];
    for (const bool is_packed : {false, true}) {
      Model& model = is_packed ? *narrow : *wide;
      draw_second_factors(model);
      const Tensor sum =
          words_loss(model, input_with(0.0), kPositions, kNext, {.gradient_scale = 0.5});
      (sum * 0.5).backward();
      Step& step = steps[is_packed ? 1 : 0];
      step.loss = sum.item<double>();
      for (const Parameter& p : model.store().parameters()) {
        step.names.push_back(p.name());
        step.gradients.push_back(p.gradient);
      }
    }
    // In another order; in bfloat16 the gradient of a layer's input is rounded at another place.
    expect_close(steps[1], steps[0], precision == Precision::kFloat32 ? 4e-5 : 0.02);
  }
}

TEST_P(LoraModel, OfAnEmbeddingComputesWithABaseOfSixteenBits) {
  for (const WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kFloat16}) {
    expect_values_alone_to_matter(config_of(GetParam(), with_embeddings()), format);
  }
}

TEST_P(LoraModel, IsDescribedAsItIsBuilt) {
  const ModelConfig config = config_of(GetParam(), {.r = 4});
  const auto model = make_model(std::nullopt, config, 7, kLoraDevice, {.fused = true});
  const std::vector<ParameterShape> shapes = parameter_shapes(config, std::nullopt);
  ASSERT_EQ(shapes.size(), model->weights().size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(shapes[i].name, model->weights()[i].name());
    EXPECT_EQ(shapes[i].trains, model->store().parameters()[i].format.trainable);
    EXPECT_EQ(shapes[i].is_base, !shapes[i].trains);
  }
  ModelConfig whole = config;
  whole.lora = {};
  const int64_t of_all = kept_bytes(whole, 16);
  EXPECT_LT(kept_bytes(config, 16), of_all + of_all / 4);
}

std::vector<std::string> adapted(const ModelConfig& config) {
  std::vector<std::string> modules;
  const auto model = make_model(std::nullopt, config, 7, kLoraDevice);
  for (const Weight& weight : model->weights()) {
    const size_t end = weight.name().find(".lora_A.weight");
    if (end != std::string::npos) modules.push_back(weight.name().substr(0, end));
  }
  return modules;
}

TEST(LoraTargets, AreMatchedAsPeftMatchesThem) {
  const auto of = [](const std::vector<std::string>& targets, bool is_pattern = false) {
    return adapted(config_of("llama", {.r = 4, .target_modules = {targets, is_pattern}}));
  };
  EXPECT_EQ(of({"all-linear"}).size(), 2 * 7U);
  EXPECT_EQ(of({"q_proj", "self_attn.v_proj"}),
            (std::vector<std::string>{
                "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_EQ(of({"model.layers.1.mlp.up_proj"}),
            std::vector<std::string>{"model.layers.1.mlp.up_proj"});
  EXPECT_EQ(of({R"(model\.layers\.1\..*(k|o)_proj)"}, true),
            (std::vector<std::string>{"model.layers.1.self_attn.k_proj",
                                      "model.layers.1.self_attn.o_proj"}));
}

TEST(LoraTargets, ThatFitNothingAreRefusedWithTheLayersThatThereAre) {
  const auto refusal = [](const nn::LoraConfig& lora) -> std::string {
    try {
      (void)make_model(std::nullopt, config_of("llama", lora), 7, kLoraDevice);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "";
  };
  EXPECT_GOLDEN(refusal({.target_modules = {{"proj"}}}));
  EXPECT_GOLDEN(refusal({.target_modules = {{"lm_head", "q_proj"}}}));
  EXPECT_GOLDEN(refusal({.r = 4, .modules_to_save = {"score"}}));
  EXPECT_GOLDEN(refusal({.r = 1000}));
  EXPECT_GOLDEN(refusal({.r = 4, .rank_pattern = {{"q_proj", 300}}}));
  EXPECT_GOLDEN(refusal({.r = 4, .target_modules = {{"q_proj"}}, .modules_to_save = {"q_proj"}}));
  EXPECT_GOLDEN(
      refusal({.r = 4, .target_modules = {.names = {"q_proj"}}, .modules_to_save = {"_proj"}}));
  EXPECT_GOLDEN(refusal({.target_modules = {{"(q"}, true}}));
}

// PEFT compares ends of names there, not whole components: "norm" is every norm.
TEST(LoraTargets, SaveEveryModuleWhoseNameEndsAsTheOneToSave) {
  const nn::LoraConfig lora{.r = 4, .modules_to_save = {"norm"}};
  int norms = 0;
  for (const ParameterShape& shape : parameter_shapes(config_of("llama", lora), std::nullopt)) {
    const bool is_norm = shape.name.ends_with("norm.weight");
    norms += is_norm ? 1 : 0;
    EXPECT_EQ(shape.trains, is_norm || shape.name.find(".lora_") != std::string::npos)
        << shape.name;
  }
  EXPECT_GT(norms, 3);
}

TEST(LoraTargets, SaveASharedWeightWholeOnlyIfTold) {
  for (const char* module : {"lm_head", "embed_tokens"}) {
    nn::LoraConfig lora{.r = 4, .modules_to_save = {module}};
    EXPECT_THROW((void)parameter_shapes(config_of("llama-tied", lora), std::nullopt), Error);
    lora.ensure_weight_tying = true;
    for (const ParameterShape& shape :
         parameter_shapes(config_of("llama-tied", lora), std::nullopt)) {
      const bool is_whole = shape.name == "model.embed_tokens.weight";
      EXPECT_EQ(shape.trains, is_whole || shape.name.find(".lora_") != std::string::npos)
          << shape.name;
    }
  }
}

TEST(LoraTargets, TrainTheBiasesOfAdaptedLayersAlone) {
  const nn::LoraConfig lora{.r = 4, .target_modules = {{"q_proj"}}, .bias = "lora_only"};
  for (const ParameterShape& shape : parameter_shapes(config_of("qwen2", lora), std::nullopt)) {
    EXPECT_EQ(shape.trains,
              shape.name.ends_with("q_proj.bias") || shape.name.find(".lora_") != std::string::npos)
        << shape.name;
  }
}

// The reference of losses that compare a model with its start.
TEST_P(LoraModel, WithoutItsAdapterIsItsBase) {
  const ModelConfig config = config_of(GetParam(), with_embeddings());
  ModelConfig base = config;
  base.lora.reset();
  const auto alone = make_model(std::nullopt, base, 7, kLoraDevice, {.fused = true});
  const ModelOptions formats{.fused = true, .base = {.weights = WeightFormat::kFloat32}};
  const auto model = make_model(std::nullopt, config, 7, kLoraDevice, formats);
  draw_second_factors(*model);
  ModelInput input = input_with(0.0);
  const Tensor adapted = model->logits(input, kPositions).detach();
  input.without_adapter = true;
  const Tensor logits = model->logits(input, kPositions);
  EXPECT_FALSE(logits.requires_grad());
  EXPECT_TRUE(logits.equal(alone->logits(input_with(0.0), kPositions)));
  EXPECT_FALSE(logits.equal(adapted));
}

TEST(LoraModel, ThatTrainsModulesWholeHasNoBase) {
  nn::LoraConfig lora{.r = 2, .target_modules = {{"q_proj"}}, .modules_to_save = {"lm_head"}};
  const auto model =
      make_model(std::nullopt, config_of("llama", lora), 7, kLoraDevice, {.fused = true});
  ModelInput input = input_with(0.0);
  input.without_adapter = true;
  EXPECT_THROW((void)model->encode(input), std::logic_error);
}

// For each token r values of the adapter, and the streams of layers below q_proj.
TEST_P(LoraModel, OfAnEmbeddingIsPlanned) {
  const auto kept = [&](const nn::LoraConfig& lora) {
    return kept_bytes(config_of(GetParam(), lora), 16);
  };
  nn::LoraConfig linear = with_embeddings();
  linear.target_modules = {{".*(q_proj|c_attn|qkv_proj|query_key_value)"}, true};
  EXPECT_GE(kept(with_embeddings()), kept(linear) + 16 * 4 * 4);
}

TEST(LoraTargets, NameEmbeddings) {
  const auto shapes_of = [](const std::string& family, const nn::LoraConfig& lora) {
    std::vector<std::pair<std::string, std::vector<int64_t>>> factors;
    for (const ParameterShape& shape : parameter_shapes(config_of(family, lora), std::nullopt)) {
      if (shape.name.find(".lora_embedding_") == std::string::npos) continue;
      EXPECT_TRUE(shape.trains) << shape.name;
      EXPECT_FALSE(shape.is_base) << shape.name;
      factors.emplace_back(shape.name, shape.sizes);
    }
    return factors;
  };
  const int64_t words = config_of("llama", {}).vocab_size;
  const int64_t size = config_of("llama", {}).hidden_size;
  const std::string module = "model.embed_tokens";
  nn::LoraConfig lora{.r = 4, .target_modules = {{"embed_tokens", "q_proj"}}};
  EXPECT_THAT(shapes_of("llama", lora),
              ElementsAre(Pair(module + ".lora_embedding_A", ElementsAre(4, words)),
                          Pair(module + ".lora_embedding_B", ElementsAre(size, 4))));
  lora.rank_pattern = {{"embed_tokens", 2}};
  EXPECT_EQ(shapes_of("llama", lora).front().second.front(), 2);
  EXPECT_EQ(shapes_of("gpt2", {.r = 4, .target_modules = {{"wte", "wpe"}}}).size(), 4U);
  EXPECT_THAT(shapes_of("llama", {.r = 4}), IsEmpty());
  // Trained whole instead.
  lora = {
      .r = 4, .target_modules = {{"embed_tokens", "q_proj"}}, .modules_to_save = {"embed_tokens"}};
  EXPECT_THAT(shapes_of("llama", lora), IsEmpty());
}

TEST(LoraTargets, OfEmbeddingsRefuseWhatIsNotAvailable) {
  const auto refusal = [](const std::string& family, const nn::LoraConfig& lora) -> std::string {
    try {
      (void)parameter_shapes(config_of(family, lora), std::nullopt);
    } catch (const nn::LoraError& error) {
      return std::string(error.key()) + ": " + error.what();
    }
    return "";
  };
  const nn::ModuleNames targets{.names = {"embed_tokens"}};
  EXPECT_GOLDEN(refusal("llama", {.r = 4, .use_dora = true, .target_modules = targets}));
  const nn::LoraConfig tied{.r = 4, .target_modules = targets, .ensure_weight_tying = true};
  EXPECT_GOLDEN(refusal("llama-tied", tied));
  EXPECT_EQ(refusal("llama", tied), "");
  EXPECT_GOLDEN(refusal("llama", {.r = 4, .target_modules = targets, .layers_to_transform = {1}}));
  EXPECT_EQ(refusal("llama", {.r = 4,
                              .target_modules = {{"model.embed_tokens", "q_proj"}},
                              .layers_to_transform = {1}}),
            "");
  EXPECT_GOLDEN(refusal("llama", {.r = 1000, .target_modules = targets}));
}

TEST(LoraTargets, LeaveModulesThatAreSavedWholeAlone) {
  const ModelConfig config = config_of("llama", {.r = 4, .modules_to_save = {"lm_head", "o_proj"}});
  for (const ParameterShape& shape : parameter_shapes(config, std::nullopt)) {
    const bool is_whole =
        shape.name == "lm_head.weight" || shape.name.find("o_proj") != std::string::npos;
    const bool is_factor = shape.name.find(".lora_") != std::string::npos;
    EXPECT_EQ(shape.trains, is_whole || is_factor) << shape.name;
    EXPECT_FALSE(is_whole && is_factor) << shape.name;
  }
}

std::string refusal_of(const nn::LoraConfig& lora) {
  try {
    (void)parameter_shapes(config_of("llama", lora), std::nullopt);
  } catch (const nn::LoraError& error) {
    return std::string(error.key()) + ": " + error.what();
  }
  return "";
}

TEST(LoraTargets, LeaveOutModulesAndLayers) {
  EXPECT_EQ(
      adapted(config_of("llama", {.r = 4, .exclude_modules = {{"mlp.up_proj", "q_proj"}}})).size(),
      2 * 5U);
  EXPECT_EQ(adapted(config_of("llama", {.r = 4, .exclude_modules = {{".*mlp.*"}, true}})).size(),
            2 * 4U);
  EXPECT_EQ(adapted(config_of(
                "llama", {.r = 4, .target_modules = {{"q_proj"}}, .layers_to_transform = {1}})),
            std::vector<std::string>{"model.layers.1.self_attn.q_proj"});
  EXPECT_EQ(adapted(config_of("gpt2", {.r = 4, .layers_to_transform = {0}})).size(), 4U);
  // Whole names are not limited, as in PEFT: what a file lists is what has adapters.
  EXPECT_EQ(adapted(config_of("llama", {.r = 4,
                                        .target_modules = {{"model.layers.0.self_attn.q_proj"}},
                                        .layers_to_transform = {1}}))
                .size(),
            1U);
  EXPECT_GOLDEN(refusal_of({.r = 4, .layers_to_transform = {7}}));
  EXPECT_GOLDEN(
      refusal_of({.r = 4, .target_modules = {{".*q_proj"}, true}, .layers_to_transform = {0}}));
}

// PEFT passes over them without a message. In its files they may be names of other models.
TEST(LoraTargets, RefuseNamesOfKeysThatNameNothing) {
  EXPECT_GOLDEN(refusal_of({.r = 4, .target_modules = {{"q_proj", "w_proj"}}}));
  EXPECT_GOLDEN(refusal_of({.r = 4, .exclude_modules = {{"mlp"}}}));
  EXPECT_EQ(refusal_of({.r = 4, .target_modules = {{"q_proj", "w_proj"}}, .file = "config.json"}),
            "");
}

TEST(LoraTargets, TakeRanksAndAlphasOfPatterns) {
  const nn::LoraConfig lora{.r = 4,
                            .rank_pattern = {{"mlp.*", 2}, {R"(1\.self_attn\.q_proj)", 8}},
                            .alpha_pattern = {{"q_proj", 16.0}}};
  for (const ParameterShape& shape : parameter_shapes(config_of("llama", lora), std::nullopt)) {
    if (!shape.name.ends_with("lora_A.weight")) continue;
    int64_t rank = shape.name.find("mlp") != std::string::npos ? 2 : 4;
    if (shape.name == "model.layers.1.self_attn.q_proj.lora_A.weight") rank = 8;
    EXPECT_EQ(shape.sizes[0], rank) << shape.name;
  }
  EXPECT_GOLDEN(refusal_of({.r = 4, .rank_pattern = {{"c_attn", 2}}}));
  EXPECT_GOLDEN(refusal_of({.r = 4, .alpha_pattern = {{"q_proj", 2.0}, {"[qk]_proj", 3.0}}}));
  EXPECT_GOLDEN(refusal_of({.r = 4, .rank_pattern = {{"[", 2}}}));
}

TEST(LoraTargets, ScaleAsPeftDoes) {
  const auto scale = [](const nn::LoraConfig& lora) {
    return nn::LoraTargets(lora).find("model.layers.0.q_proj", false)->scale;
  };
  EXPECT_EQ(scale({.r = 16, .lora_alpha = 32.0}), 2.0);
  EXPECT_EQ(scale({.r = 16, .lora_alpha = 32.0, .use_rslora = true}), 8.0);
  EXPECT_EQ(scale({.r = 16, .rank_pattern = {{"q_proj", 4}}, .alpha_pattern = {{"q_proj", 2.0}}}),
            0.5);
}

}  // namespace
}  // namespace finetune
