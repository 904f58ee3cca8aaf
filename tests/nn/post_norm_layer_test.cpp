// SPDX-License-Identifier: MIT
#include "nn/post_norm_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/square.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "finetune/tensor/meta_memory.h"

namespace finetune {
namespace {

constexpr LayerCase kPlain = {};
constexpr LayerCase kDropped = {.dropout = 0.1};
constexpr LayerCase kMasked = {.dropout = 0.1, .masked = true};

void expect_near(const RandomLayer& layer, const LayerGradients& actual,
                 const LayerGradients& expected, double tolerance) {
  EXPECT_LT(difference(actual.y, expected.y), tolerance) << "y";
  EXPECT_LT(difference(actual.dx, expected.dx), tolerance) << "dx";
  ASSERT_EQ(actual.weights.size(), expected.weights.size());
  for (size_t i = 0; i < actual.weights.size(); ++i) {
    const std::string& name = layer.parameters[i].name();
    ASSERT_TRUE(actual.weights[i].defined()) << name;
    if (name == "key.bias") {
      // Adding a constant to all scores of a query changes nothing, so this gradient is noise
      // around zero.
      EXPECT_LE(actual.weights[i].abs().max().item<double>(),
                10 * tolerance * expected.weights[0].abs().max().item<double>());
      continue;
    }
    EXPECT_LT(difference(actual.weights[i], expected.weights[i]), tolerance) << name;
  }
}

void expect_equal(const LayerGradients& a, const LayerGradients& b) {
  EXPECT_TRUE(a.y.equal(b.y));
  EXPECT_TRUE(a.dx.equal(b.dx));
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(a.weights[i].equal(b.weights[i])) << i;
  }
}

Tensor squared_relu(const Tensor& x) { return at::square(x.relu()); }
Tensor identity(const Tensor& x) { return x; }

class PostNormLayerLikeAutograd : public testing::TestWithParam<LayerCase> {};

TEST_P(PostNormLayerLikeAutograd, GivesTheSameOutputsAndGradients) {
  const RandomLayer layer(GetParam());
  expect_near(layer, layer.by_hand(), layer.by_autograd(), 4e-6);
  // A single token attends only to itself, so the gradient of its query is ATen's rounding error.
  if (GetParam().tokens == 1) return;
  expect_near(layer, layer.by_plain_mode(), layer.by_autograd(), 4e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PostNormLayerLikeAutograd,
    testing::Values(
        kPlain, kDropped, kMasked, LayerCase{.masked = true},
        LayerCase{.tokens = 37, .heads = 3, .head_size = 60, .dropout = 0.1},
        LayerCase{
            .tokens = 70, .head_size = 64, .intermediate = 200, .dropout = 0.1, .masked = true},
        LayerCase{.batch = 1, .tokens = 2100, .heads = 1, .head_size = 8, .dropout = 0.1},
        LayerCase{.dropout = 0.1, .projection_bias = false},
        LayerCase{.dropout = 0.1, .activation = squared_relu}, LayerCase{.activation = identity},
        LayerCase{.batch = 1, .tokens = 1}));

TEST(PostNormLayer, ComputesDoublesAsAutogradDoes) {
  const RandomLayer layer({.dropout = 0.1, .masked = true, .type = at::kDouble});
  const LayerGradients actual = layer.by_hand();
  const LayerGradients expected = layer.by_autograd();
  EXPECT_LT(difference(actual.y, expected.y), 1e-12);
  EXPECT_LT(difference(actual.dx, expected.dx), 1e-12);
  expect_near(layer, actual, expected, 1e-6);  // the store keeps gradients in float32
}

TEST(PostNormLayer, HasTheGradientOfItsOwnDifferences) {
  const LayerCase wanted = {.batch = 2,
                            .tokens = 5,
                            .heads = 2,
                            .head_size = 3,
                            .intermediate = 7,
                            .dropout = 0.1,
                            .masked = true,
                            .type = at::kDouble};
  const RandomLayer layer(wanted);
  const LayerGradients gradients = layer.by_hand();
  const c10::NoGradGuard no_grad;
  const std::unique_ptr<ParameterStore> made = layer.make_store();
  ParameterStore& store = *made;
  nn::Pass pass(nn::Mode::kEval, layer.options(store));
  const auto loss = [&] {
    return (layer.layer({.tensor = layer.x}, pass).tensor * layer.dy).sum().item<double>();
  };
  const auto check = [&](const Tensor& values, const Tensor& gradient, const std::string& name) {
    const Tensor flat = values.detach().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double before = flat[i].item<double>();
      const double step = 1e-5;
      flat[i].fill_(before + step);
      const double above = loss();
      flat[i].fill_(before - step);
      const double below = loss();
      flat[i].fill_(before);
      EXPECT_NEAR(gradient.view({-1})[i].item<double>(), (above - below) / (2 * step), 2e-5)
          << name << " " << i;
    }
  };
  check(layer.x, gradients.dx, "x");
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    check(layer.values[i], gradients.weights[i], layer.parameters[i].name());
  }
}

TEST(PostNormLayer, GivesEqualBitsWhetherCheapResultsAreKeptOrNot) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kBFloat16, Precision::kFloat16}) {
    const RandomLayer layer(kMasked);
    expect_equal(layer.by_hand(precision, true), layer.by_hand(precision, false));
  }
}

TEST(PostNormLayer, GivesEqualBitsTwice) {
  const RandomLayer layer({.batch = 4, .tokens = 40, .dropout = 0.1});
  expect_equal(layer.by_hand(), layer.by_hand());
}

TEST(PostNormLayer, ComputesInTheHalvesWithinTheirPrecision) {
  const RandomLayer layer(kMasked);
  const LayerGradients expected = layer.by_hand();
  const LayerGradients brain = layer.by_hand(Precision::kBFloat16);
  EXPECT_EQ(brain.y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(brain.dx.scalar_type(), at::kBFloat16);
  expect_near(layer, brain, expected, 0.03);
  const LayerGradients half = layer.by_hand(Precision::kFloat16);
  EXPECT_EQ(half.dx.scalar_type(), at::kHalf);
  expect_near(layer, half, expected, 0.004);
}

TEST(PostNormLayer, LetsHalfOverflowToInfinity) {
  RandomLayer layer(kPlain);
  layer.dy.mul_(60000.0);
  const LayerGradients half = layer.by_hand(Precision::kFloat16);
  EXPECT_FALSE(half.weights.front().isfinite().all().item<bool>());
}

// Measures in a dry run what the tape keeps, what the backward pass adds, and that nothing remains.
TEST(PostNormLayer, KeepsWhatItsFormulaSays) {
  const c10::NoGradGuard no_grad;
  const c10::Device meta(c10::kMeta);
  for (const bool selective : {false, true}) {
    const LayerCase wanted = {.dropout = 0.1};
    Weights parameters;
    const PostNormLayer layer(nn::Scope(parameters), wanted);
    ParameterStore store(parameters, WeightFormat::kFloat32, GradientFormat::kFloat32, meta);
    store.gradients().reserve();  // so that they are not counted
    const int64_t rows = wanted.batch * wanted.tokens;
    const int64_t hidden = rows * wanted.hidden() * 4;
    const int64_t intermediate = rows * wanted.intermediate * 4;
    const Tensor x = at::empty({wanted.batch, wanted.tokens, wanted.hidden()},
                               at::TensorOptions(meta).dtype(at::kFloat));
    const MetaMemory memory;
    nn::Pass pass(nn::Mode::kTrain,
                  {.parameters = &store,
                   .inputs = {.dropout = DropoutStream{}},
                   .checkpointing = {.enabled = selective, .selective = selective}});
    nn::Value input = pass.result(x.clone(), true);
    const std::shared_ptr<nn::Slot> dx = input.slot;
    nn::Value y = layer(input, pass);
    input.tensor = y.tensor = Tensor();
    y.rebuild = {};
    const int64_t kept = 7 * hidden + intermediate;
    EXPECT_EQ(memory.now(), selective ? kept : kept + hidden + intermediate);
    const int64_t before = memory.now();
    pass.backward(y, at::empty_like(x));
    EXPECT_EQ(memory.now(), hidden);  // of dx, in the memory of dy
    // The output's gradient, recomputed tensors, and gradients of vectors.
    EXPECT_LT(memory.peak(), before + hidden + (selective ? intermediate : 0) + 8192);
  }
}

TEST(PostNormLayer, PaddedRowsMakeNoNaN) {
  RandomLayer layer({.dropout = 0.1, .masked = true});
  layer.mask[2].fill_(false);  // a sample without any token
  const LayerGradients all = layer.by_hand();
  EXPECT_TRUE(all.y.isfinite().all().item<bool>());
  EXPECT_TRUE(all.dx.isfinite().all().item<bool>());
  for (const Tensor& gradient : all.weights) EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

TEST(PostNormLayer, CompletesEveryParameterOnce) {
  const RandomLayer layer(kDropped);
  const std::unique_ptr<ParameterStore> made = layer.make_store();
  ParameterStore& store = *made;
  std::vector<std::string> names;
  store.gradients().on_complete([&](Parameter& parameter) { names.push_back(parameter.name()); });
  (void)layer.train(store, layer.options(store));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names.size(), 16U);
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(PostNormLayer, ReadsWeightsOfTwentyFourBits) {
  const RandomLayer layer(kDropped);
  const LayerGradients expected = layer.by_hand();
  const c10::NoGradGuard no_grad;
  const std::unique_ptr<ParameterStore> made = layer.make_store(WeightFormat::kSplit);
  ParameterStore& store = *made;
  for (size_t i = 0; i < layer.values.size(); ++i) {
    store.assign(store.parameters()[i], layer.values[i]);
  }
  const LayerGradients actual = layer.train(store, layer.options(store));
  expect_near(layer, actual, expected, 3e-4);
}

}  // namespace
}  // namespace finetune
