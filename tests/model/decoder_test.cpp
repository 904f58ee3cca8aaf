// SPDX-License-Identifier: MIT
// Compares causal language models trained by fused passes with autograd over torch's operators, for
// every family and variant of make_decoder_goldens.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/model/frozen.h"
#include "finetune/model/model.h"
#include "finetune/task/words_loss.h"
#include "support/paths.h"

namespace finetune {
namespace {

const c10::Device kDecoderDevice(c10::kCPU);

ModelConfig golden_config(const std::string& name, double dropout = 0.0) {
  ModelConfig config = read_model_config(source_dir() + "/tests/fixtures/model/" + name);
  config.initializer_range = 0.2;  // else every gradient is about 0
  // Enables dropout wherever the family has it, as if the file did.
  config.decoder.attention_dropout = config.attention_probs_dropout_prob = dropout;
  config.decoder.resid_pdrop = config.decoder.embd_pdrop = dropout;
  return config;
}

// Rows of 11, 7, 11 and 8 tokens, padded on the right.
ModelInput rows_of_tokens(bool layout, bool drops = false) {
  at::manual_seed(1);
  const std::vector<int64_t> lengths = {11, 7, 11, 8};
  ModelInput input{.input_ids = at::randint(4, 32, {4, 11}, at::kLong), .attention_mask = {}};
  const Tensor positions = at::arange(11, at::kLong);
  input.attention_mask = positions.lt(at::tensor(lengths, at::kLong).unsqueeze(1));
  if (drops) input.dropout = DropoutStream{.seed = 5, .update = 3, .first_position = 8};
  if (!layout) return input;
  input.layout = make_token_layout(lengths, 11, kDecoderDevice);
  return input;
}

const Tensor kTargets = at::tensor({0, 3, 11, 16, 25, 33, 39}, at::kLong);
const Tensor kNextTokens = at::tensor({5, 30, 7, 8, 31, 3, 9}, at::kLong);

struct Trained {
  double loss = 0.0;
  std::vector<std::string> names = {};
  std::vector<Tensor> gradients = {};
};

Trained train_decoder(const ModelInput& input, const ModelConfig& config,
                      const ModelOptions& options) {
  const auto model = make_model(std::nullopt, config, 7, kDecoderDevice, options);
  const Tensor sum = words_loss(*model, input, kTargets, kNextTokens, {.gradient_scale = 0.5});
  (sum * 0.5).backward();
  Trained result{.loss = sum.item<double>()};
  for (const Parameter& p : model->store().parameters()) {
    if (p.role() == ParameterRole::kConstant) continue;
    result.names.push_back(p.name());
    result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
  }
  return result;
}

void expect_close(const Trained& a, const Trained& b, double tolerance) {
  EXPECT_NEAR(a.loss, b.loss, tolerance * std::abs(b.loss));
  double largest = 0.0;
  for (const Tensor& gradient : b.gradients) {
    largest = std::max(largest, gradient.to(at::kFloat).norm().item<double>());
  }
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_TRUE(a.gradients[i].defined()) << a.names[i];
    const Tensor expected = b.gradients[i].to(at::kFloat);
    const double difference = (a.gradients[i].to(at::kFloat) - expected).norm().item<double>();
    EXPECT_LE(difference, tolerance * (expected.norm().item<double>() + 0.02 * largest))
        << a.names[i];
  }
}

bool same_bits(const Trained& a, const Trained& b) {
  bool same = a.loss == b.loss;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    same = same && a.gradients[i].equal(b.gradients[i]);
  }
  return same;
}

class DecoderModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Families, DecoderModel,
    testing::Values("llama", "llama-tied", "llama-biased", "llama-dynamic", "llama-longrope",
                    "llama-proportional", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
                    "gemma3_text", "phi3", "phi3-longrope", "olmo2", "smollm3", "gpt2",
                    "gpt2-scaled", "ministral", "olmo3", "granite", "seed_oss", "glm4", "helium",
                    "ernie4_5", "starcoder2", "arcee", "gpt_neox", "gpt_neox-sequential", "phi",
                    "stablelm", "stablelm-parallel", "exaone4", "hunyuan_v1_dense", "ministral3",
                    "nanochat", "modernbert-decoder", "lfm2", "lfm2-biased", "qwen3_5_text",
                    "apertus", "gemma4_text", "gemma4_text-shared", "gemma3n_text", "qwen3_moe",
                    "olmoe", "granitemoe", "gpt_oss"),
    [](const auto& shown) {
      std::string name = shown.param;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// The reference computes padding; with a layout padding is left out. Orders of sums differ, so
// gradients agree to five digits.
TEST_P(DecoderModel, HasTheReadableModelsLossAndGradientsWithAndWithoutPadding) {
  const bool by_length = GetParam().ends_with("dynamic") || GetParam().ends_with("longrope");
  for (const double dropout : {0.0, 0.2}) {
    const ModelConfig config = golden_config(GetParam(), dropout);
    for (const bool layout : {false, true}) {
      if (layout && by_length) continue;  // depends on each row's own length
      const ModelInput input = rows_of_tokens(layout, dropout > 0.0);
      expect_close(train_decoder(input, config, {.fused = true}), train_decoder(input, config, {}),
                   2e-5);
    }
  }
}

// kTargets are 7 of 44 tokens; an eighth makes a multiple of a 32nd of all.
TEST_P(DecoderModel, EndsItsLastLayerWithTheTokensThatAreReadAlone) {
  const auto model =
      make_model(std::nullopt, golden_config(GetParam()), 7, kDecoderDevice, {.fused = true});
  const c10::NoGradGuard no_grad;
  ModelInput input = rows_of_tokens(/*layout=*/false);
  input.read_positions = kTargets;
  const Encoded encoded = model->encode(input);
  // It has several streams of a token, which it joins after its layers.
  const bool computes_all = GetParam() == "gemma3n_text";
  EXPECT_EQ(encoded.read.defined(), !computes_all);
  EXPECT_EQ(encoded.hidden.size(1), computes_all ? 11 : 8);
}

// With another factor for each token, which is known after the forward pass only.
TEST_P(DecoderModel, HasTheReadableModelsLogProbabilitiesAndTheirGradients) {
  const ModelConfig config = golden_config(GetParam());
  const Tensor factors = at::tensor({0.5F, -2.0F, 0.0F, 1.25F, -0.25F, 3.0F, 1.0F});
  const auto train = [&](const ModelInput& input, const ModelOptions& options) {
    const auto model = make_model(std::nullopt, config, 7, kDecoderDevice, options);
    const Tensor log_probs = token_log_probs(*model, input, kTargets, kNextTokens);
    const Tensor loss = (log_probs * factors).sum();
    loss.backward();
    Trained result{.loss = loss.item<double>()};
    for (const Parameter& p : model->store().parameters()) {
      if (p.role() == ParameterRole::kConstant) continue;
      result.names.push_back(p.name());
      result.gradients.push_back(options.fused ? p.gradient : p.weight.grad());
    }
    return result;
  };
  const ModelInput input = rows_of_tokens(/*layout=*/false);
  // The terms of the gradients of gemma3n's streams nearly cancel.
  const double tolerance = GetParam() == std::string("gemma3n_text") ? 4e-5 : 2e-5;
  for (const int64_t rows : {1, 4, 128}) {
    expect_close(train(input, {.fused = true, .head_rows_per_chunk = rows}), train(input, {}),
                 tolerance);
  }
}

TEST_P(DecoderModel, RecomputingChangesNoBit) {
  const ModelConfig config = golden_config(GetParam(), 0.1);
  for (const bool layout : {false, true}) {
    const ModelInput input = rows_of_tokens(layout, true);
    const Trained kept = train_decoder(input, config, {.fused = true});
    EXPECT_TRUE(same_bits(
        train_decoder(input, config, {.fused = true, .checkpointing = {.enabled = true}}), kept));
    EXPECT_TRUE(same_bits(
        train_decoder(input, config,
                      {.fused = true,
                       .checkpointing = {.enabled = true, .every_n_layers = 2, .offload = true}}),
        kept));
    EXPECT_TRUE(same_bits(
        train_decoder(input, config,
                      {.fused = true, .checkpointing = {.enabled = true, .selective = true}}),
        kept));
  }
}

// 8 and 11 significant bits; errors of a few units accumulate over two layers.
TEST_P(DecoderModel, FrozenParametersChangeNoOtherGradient) {
  const ModelConfig config = golden_config(GetParam(), 0.2);
  const ModelInput input = rows_of_tokens(false, true);
  for (const std::vector<std::string>& freeze :
       {std::vector<std::string>{"embed_tokens", "wte", "wpe", "(layers|h).0"},
        {".*weight"},
        {"(layers|h)", "wte", "wpe"},
        {".*norm", "self_attn", "attn", "ln_[12f]"}}) {
    for (ModelOptions options :
         {ModelOptions{.fused = true},
          ModelOptions{.fused = true, .checkpointing = {.enabled = true, .every_n_layers = 2}},
          ModelOptions{.fused = true, .checkpointing = {.enabled = true, .selective = true}}}) {
      const Trained everything = train_decoder(input, config, options);
      options.freeze = freeze;
      const FrozenParameters frozen(freeze);
      if (std::ranges::all_of(everything.names,
                              [&](const std::string& name) { return frozen.has(name); })) {
        continue;  // a family without biases
      }
      const Trained rest = train_decoder(input, config, options);
      EXPECT_EQ(rest.loss, everything.loss);
      for (size_t i = 0; i < rest.gradients.size(); ++i) {
        ASSERT_EQ(rest.gradients[i].defined(), !frozen.has(rest.names[i]))
            << rest.names[i] << " with " << freeze.front();
        if (!rest.gradients[i].defined()) continue;
        EXPECT_TRUE(rest.gradients[i].equal(everything.gradients[i]))
            << rest.names[i] << " with " << freeze.front();
      }
    }
  }
}

TEST_P(DecoderModel, HalfPrecisionStaysNearFloat32) {
  const ModelConfig config = golden_config(GetParam());
  const ModelInput input = rows_of_tokens(true);
  const Trained exact = train_decoder(input, config, {.fused = true});
  // Gradients of these, with random weights, depend on a rounded router or on a softmax of large
  // scores: transformers' autocast in bfloat16 differs from float32 by 0.13 and 0.9 of them too.
  const bool is_steep = GetParam().starts_with("gpt_oss") || GetParam() == "gemma4_text-shared";
  for (const auto& [precision, tolerance] :
       {std::pair(Precision::kFloat16, 0.02), {Precision::kBFloat16, 0.16}}) {
    Trained half = train_decoder(input, config, {.fused = true, .precision = precision});
    if (is_steep) half.gradients.clear();
    expect_close(half, exact, tolerance);
  }
}

// A row's logits depend neither on the other rows nor on the side of the padding.
TEST_P(DecoderModel, GivesARowTheSameLogitsAloneInABatchAndBehindPadding) {
  const ModelConfig config = golden_config(GetParam());
  const c10::NoGradGuard no_grad;
  for (const bool fused : {false, true}) {
    const auto model = make_model(std::nullopt, config, 7, kDecoderDevice, {.fused = fused});
    const ModelInput batch = rows_of_tokens(fused);
    const Tensor own = batch.input_ids[1].narrow(0, 0, 7).unsqueeze(0);
    const Tensor alone =
        model->logits({.input_ids = own, .attention_mask = {}}, at::arange(7, at::kLong));
    const bool by_length = GetParam().ends_with("dynamic") || GetParam().ends_with("longrope");
    if (fused || !by_length) {
      const Tensor beside = model->logits(batch, at::arange(11, 18, at::kLong));
      EXPECT_LT((beside - alone).abs().max().item<double>(), 1e-5);
    }
    // Learned positions, factors of positions and what depends on the length count padding before
    // the text.
    if (by_length || GetParam().starts_with("gpt2") || GetParam() == "ministral3") continue;
    const Tensor padding = at::randint(4, 32, {1, 3}, at::kLong);
    ModelInput left{.input_ids = at::cat({padding, own}, 1), .attention_mask = {}};
    left.attention_mask = at::arange(10, at::kLong).ge(3).unsqueeze(0);
    const Tensor after = model->logits(left, at::arange(3, 10, at::kLong));
    EXPECT_LT((after - alone).abs().max().item<double>(), 1e-5);
  }
}

// Reads a prompt and then token by token, as generation does, without dropout and padding.
TEST_P(DecoderModel, GoesOnBehindACacheAsIfTheTextWereReadWhole) {
  const ModelConfig config = golden_config(GetParam());
  const c10::NoGradGuard no_grad;
  const auto model = make_model(std::nullopt, config, 7, kDecoderDevice, {.fused = true});
  const Tensor ids = rows_of_tokens(false).input_ids.narrow(0, 0, 1);
  KeyValueCache cache;
  const auto read = [&](int64_t first, int64_t count) {
    return model->logits(
        {.input_ids = ids.narrow(1, first, count), .attention_mask = {}, .cache = &cache},
        at::tensor({count - 1}, at::kLong));
  };
  // transformers also keeps the rotated keys of an earlier length.
  const bool by_length = GetParam().ends_with("dynamic") || GetParam().ends_with("longrope");
  const std::vector<std::pair<int64_t, int64_t>> parts = {{0, 6}, {6, 1}, {7, 3}, {10, 1}};
  for (const auto& [first, count] : parts) {
    const Tensor after = read(first, count);
    EXPECT_EQ(cache.length, first + count);
    if (by_length && first > 0) continue;
    const Tensor whole =
        model->logits({.input_ids = ids.narrow(1, 0, first + count), .attention_mask = {}},
                      at::tensor({first + count - 1}, at::kLong));
    EXPECT_LT((after - whole).abs().max().item<double>(), 1e-5) << first;
  }
}

// As in transformers, whose matrices of all experts are one parameter: those without tokens are
// updated, too, by moments and weight decay.
TEST(DecoderModels, ChooseTheLowerOfEqualExpertsAndGiveTheOthersZeroGradients) {
  const ModelConfig config = golden_config("olmoe");  // 3 of 6
  const auto model = make_model(std::nullopt, config, 7, kDecoderDevice, {.fused = true});
  for (Parameter& p : model->store().parameters()) {
    if (p.name().ends_with(".mlp.gate.weight")) {
      model->store().assign(p, at::zeros(p.handle.sizes()));
    }
  }
  token_log_probs(*model, rows_of_tokens(/*layout=*/false), kTargets, kNextTokens).sum().backward();
  for (const Parameter& p : model->store().parameters()) {
    const size_t experts = p.name().find(".experts.");
    if (experts == std::string::npos) continue;
    const bool is_chosen = p.name()[experts + 9] < '3';
    ASSERT_TRUE(p.gradient.defined()) << p.name();
    EXPECT_EQ(p.gradient.abs().max().item<float>() > 0.0F, is_chosen) << p.name();
  }
}

TEST(DecoderModels, RefuseHeadsThatTheyDoNotHave) {
  try {
    (void)make_model(Head::kQuestionAnswering, golden_config("llama"), 7, kDecoderDevice);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model_type 'llama' has no head for this task"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace finetune
