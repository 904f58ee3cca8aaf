// SPDX-License-Identifier: MIT
#include "finetune/params/store.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "finetune/kernels/mxfp4.h"

namespace finetune {
namespace {

struct Fixture {
  explicit Fixture(WeightFormat weights = WeightFormat::kFloat32,
                   GradientFormat gradients = GradientFormat::kFloat32)
      : store({{"matrix", at::zeros({6, 4})}, {"bias", at::zeros({6})}}, weights, gradients),
        matrix(store.weight("matrix")),
        bias(store.weight("bias")) {}

  Parameter& first() { return store.parameters()[0]; }

  ParameterStore store;
  Weight matrix, bias;
};

constexpr WeightFormat kFormats[] = {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                     WeightFormat::kSplit};
// Half a unit in the last place: bfloat16 has 8 significant bits, the correction 8 more.
double tolerance(WeightFormat format) {
  if (format == WeightFormat::kFloat32) return 0.0;
  return format == WeightFormat::kBFloat16 ? 0x1p-8 : 0x1p-15;
}

TEST(ParameterStore, GivesBackAssignedValuesInEachFormat) {
  for (const WeightFormat format : kFormats) {
    Fixture f(format);
    const Tensor values = at::randn({6, 4});
    f.store.assign(f.first(), values);
    EXPECT_TRUE(at::allclose(f.store.values(f.matrix), values, tolerance(format), 0.0));
    EXPECT_TRUE(
        f.store.values_of_rows(f.matrix, 2, 3).equal(f.store.values(f.matrix).narrow(0, 2, 3)));
    const Tensor ids = at::arange(6).flip(0).view({2, 3});
    EXPECT_TRUE(f.store.gather_rows(f.matrix, ids).equal(f.store.values(f.matrix).index({ids})));
  }
}

// In both formats of gradients, with the rounding of one addition.
TEST(ParameterStore, AddsPartialSumsAsTheirSum) {
  const Tensor parts = at::randn({3, 6});
  for (const GradientFormat format : {GradientFormat::kFloat32, GradientFormat::kBFloat16}) {
    Fixture whole(WeightFormat::kFloat32, format);
    Fixture partial(WeightFormat::kFloat32, format);
    for (Fixture* f : {&whole, &partial})
      f->store.gradients().begin_micro_batch({.seed = 3, .update = 1});
    for (int i = 0; i < 2; ++i) {
      whole.store.gradients().add(whole.bias, parts.sum(0));
      partial.store.gradients().add(partial.bias, parts);
    }
    partial.store.gradients().add_pending();
    const Tensor gradient = partial.store.parameters()[1].gradient;
    EXPECT_TRUE(gradient.equal(whole.store.parameters()[1].gradient));
    EXPECT_NE(gradient.abs().sum().item<float>(), 0.0F);
  }
}

TEST(ParameterStore, DropsPendingSumsWithTheGradients) {
  Fixture f;
  f.store.gradients().add(f.bias, at::ones({3, 6}));
  f.store.gradients().clear(/*keep_memory=*/true);
  f.store.gradients().add_pending();
  EXPECT_FALSE(f.store.parameters()[1].gradient.defined());
  EXPECT_THROW(f.store.gradients().add(f.bias, at::ones({3, 5})), std::logic_error);
}

TEST(ParameterStore, KeepsTheMemoryThatEachFormatPromises) {
  const auto bytes = [](WeightFormat format) {
    Fixture f(format);
    const Parameter& p = f.first();
    return (p.weight.nbytes() + (p.correction.defined() ? p.correction.nbytes() : 0)) / 24;
  };
  EXPECT_EQ(bytes(WeightFormat::kFloat32), 4U);
  EXPECT_EQ(bytes(WeightFormat::kBFloat16), 2U);
  EXPECT_EQ(bytes(WeightFormat::kSplit), 3U);
}

TEST(ParameterStore, HasTheTensorOfAWeightInItsFormat) {
  Fixture f(WeightFormat::kBFloat16);
  EXPECT_EQ(f.store.tensor(f.matrix).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(f.store.tensor(f.matrix).requires_grad());
}

TEST(ParameterStore, AddsProductsAsAutogradDoes) {
  Fixture f;
  const Tensor x = at::randn({2, 5, 4});
  const Tensor dy = at::randn({2, 5, 6});
  f.store.gradients().add_product(f.matrix, dy, x);
  f.store.gradients().add_product(f.matrix, dy, x);
  const Tensor expected = dy.reshape({-1, 6}).t().mm(x.reshape({-1, 4})) * 2;
  EXPECT_TRUE(at::allclose(f.first().gradient, expected, 1e-5, 1e-5));
}

TEST(ParameterStore, AddsProductsToSomeRowsAlone) {
  Fixture f;
  const Tensor x = at::randn({5, 4});
  const Tensor dy = at::randn({5, 2});
  f.store.gradients().add_product_to_rows(f.matrix, 3, dy, x);
  const Tensor expected = at::zeros({6, 4});
  expected.narrow(0, 3, 2).copy_(dy.t().mm(x));
  EXPECT_TRUE(at::allclose(f.first().gradient, expected, 1e-5, 1e-6));
}

TEST(ParameterStore, SumsRowsOfRepeatedIndicesAndSkipsThePadding) {
  for (const GradientFormat format : {GradientFormat::kFloat32, GradientFormat::kBFloat16}) {
    Fixture f(WeightFormat::kFloat32, format);
    const Tensor indices = at::randint(0, 6, {40}, at::kLong);
    const Tensor rows = at::randint(-3, 4, {40, 4}).to(at::kFloat);  // exact in bfloat16
    f.store.gradients().add_to_indexed_rows(f.matrix, indices, rows, 1);
    const Tensor expected = at::zeros({6, 4}).index_add(0, indices, rows);
    expected[1].zero_();
    EXPECT_TRUE(f.first().gradient.to(at::kFloat).equal(expected));
  }
}

TEST(ParameterStore, SumsRowsToEqualBitsWhateverTheThreads) {
  const Tensor indices = at::randint(0, 6, {500}, at::kLong);
  const Tensor rows = at::randn({500, 4});
  const auto sum = [&](int threads) {
    at::set_num_threads(threads);
    Fixture f;
    f.store.gradients().add_to_indexed_rows(f.matrix, indices, rows, -1);
    return f.first().gradient;
  };
  const Tensor one = sum(1);
  EXPECT_TRUE(sum(2).equal(one));
  at::set_num_threads(1);
}

TEST(ParameterStore, RoundsSumsOfBFloat16GradientsWithoutBias) {
  Fixture f(WeightFormat::kFloat32, GradientFormat::kBFloat16);
  // 1/512 of the last place of 1: rounding to nearest would lose each addend.
  const Tensor small = at::ones({6, 4}) * 0x1p-10;
  f.store.gradients().add(f.matrix, at::ones({6, 4}));
  for (int64_t i = 0; i < 4096; ++i) {
    f.store.gradients().begin_micro_batch({.seed = 3, .update = 1, .first_position = i});
    f.store.gradients().add(f.matrix, small);
  }
  EXPECT_NEAR(f.first().gradient.to(at::kFloat).mean().item<double>(), 5.0, 0.25);
}

TEST(ParameterStore, RoundsTheSameSumsToEqualBits) {
  const Tensor gradient = at::randn({6, 4});
  const auto run = [&](int64_t position) {
    Fixture f(WeightFormat::kFloat32, GradientFormat::kBFloat16);
    f.store.gradients().begin_micro_batch({.seed = 3, .update = 1, .first_position = position});
    for (int i = 0; i < 20; ++i) f.store.gradients().add(f.matrix, gradient);
    return f.first().gradient;
  };
  EXPECT_TRUE(run(0).equal(run(0)));
  EXPECT_FALSE(run(0).equal(run(8)));
}

TEST(ParameterStore, TellsOfCompleteParametersThatHaveAGradient) {
  Fixture f;
  std::vector<std::string> reported;
  f.store.gradients().on_complete([&](Parameter& p) { reported.push_back(p.name()); });
  f.store.gradients().complete({f.matrix, Weight(), f.bias});
  f.store.gradients().add(f.bias, at::ones({6}));
  f.store.gradients().complete({f.matrix, f.bias});
  EXPECT_EQ(reported, std::vector<std::string>{"bias"});
}

TEST(ParameterStore, StartsFromZeroInKeptMemory) {
  Fixture f;
  f.store.gradients().add(f.matrix, at::ones({6, 4}));
  const void* memory = f.first().gradient.data_ptr();
  f.store.gradients().clear(/*keep_memory=*/true);
  EXPECT_FALSE(f.first().gradient.defined());
  f.store.gradients().add(f.matrix, at::ones({6, 4}));
  EXPECT_EQ(f.first().gradient.data_ptr(), memory);
  EXPECT_TRUE(f.first().gradient.equal(at::ones({6, 4})));
}

TEST(ParameterStore, RefusesWeightsOfAnotherModel) {
  Fixture f;
  const Fixture other;
  EXPECT_THROW(f.store.gradients().add(other.matrix, at::ones({6, 4})), std::logic_error);
  EXPECT_THROW((void)f.store.values(other.matrix), std::logic_error);
}

TEST(ParameterStore, KeepsEachParameterInItsOwnFormat) {
  const Weight base(0, "base", {6, 4}, ParameterRole::kOther);
  const Weight adapter(1, "adapter", {6, 4}, ParameterRole::kOther);
  ParameterStore store({base, adapter}, {{.weight = WeightFormat::kSplit, .trainable = false},
                                         {.gradient = GradientFormat::kBFloat16}});
  EXPECT_EQ(store.tensor(base).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(store.parameters()[0].correction.defined());
  EXPECT_EQ(store.tensor(adapter).scalar_type(), at::kFloat);
  EXPECT_FALSE(store.parameters()[1].correction.defined());
  EXPECT_TRUE(store.has_corrections());
  EXPECT_EQ(store.weight_format(), WeightFormat::kFloat32);  // of trained parameters
  EXPECT_EQ(store.gradient_format(), GradientFormat::kBFloat16);
  const Tensor values = at::randn({6, 4});
  for (Parameter& parameter : store.parameters()) store.assign(parameter, values);
  EXPECT_TRUE(at::allclose(store.values(base), values, 0x1p-15, 0.0));
  EXPECT_TRUE(store.values(adapter).equal(values));
  store.gradients().begin_micro_batch({});
  store.gradients().add(adapter, values);
  EXPECT_EQ(store.parameters()[1].gradient.scalar_type(), at::kBFloat16);
}

TEST(ParameterStore, MakesNoGradientOfFrozenParameters) {
  Fixture f;
  f.store.freeze([](const std::string& name) { return name == "matrix"; });
  EXPECT_EQ(f.store.trained(), std::vector<size_t>{1});
  int completed = 0;
  f.store.gradients().on_complete([&](const Parameter&) { ++completed; });
  f.store.gradients().reserve();
  f.store.gradients().add(f.matrix, at::ones({6, 4}));
  f.store.gradients().add_product(f.matrix, at::ones({5, 6}), at::ones({5, 4}));
  f.store.gradients().add_product_to_rows(f.matrix, 2, at::ones({5, 2}), at::ones({5, 4}));
  f.store.gradients().add_to_indexed_rows(f.matrix, at::zeros({3}, at::kLong), at::ones({3, 4}),
                                          -1);
  f.store.gradients().open({0, 1});
  f.store.gradients().add(f.bias, at::ones({6}));
  f.store.gradients().complete({f.matrix, f.bias});
  EXPECT_FALSE(f.first().gradient.defined());
  EXPECT_TRUE(f.store.parameters()[1].gradient.equal(at::ones({6})));
  EXPECT_EQ(completed, 1);
  f.store.gradients().clear(/*keep_memory=*/true);
  f.store.gradients().open({0, 1});
  EXPECT_FALSE(f.first().gradient.defined());
}

// Its memory holds what the last update left.
TEST(ParameterStore, MakesTheFirstProductTheGradient) {
  Fixture f;
  f.store.gradients().add(f.matrix, at::full({6, 4}, std::numeric_limits<float>::infinity()));
  f.store.gradients().clear(/*keep_memory=*/true);
  const Tensor dy = at::randn({50, 6});
  const Tensor x = at::randn({50, 4});
  const Tensor product = dy.t().mm(x);
  f.store.gradients().add_product(f.matrix, dy, x);
  EXPECT_TRUE(at::allclose(f.first().gradient, product, 1e-5, 1e-5));
  f.store.gradients().add_product(f.matrix, dy, x);
  EXPECT_TRUE(at::allclose(f.first().gradient, 2 * product, 1e-5, 1e-5));
  f.store.gradients().clear(/*keep_memory=*/false);
  f.store.gradients().add_product_to_rows(f.matrix, 1, dy.narrow(1, 1, 2),
                                          x);  // the others are zeros
  EXPECT_TRUE(at::allclose(f.first().gradient.narrow(0, 1, 2), product.narrow(0, 1, 2)));
  EXPECT_EQ(f.first().gradient.count_nonzero().item<int64_t>(), 8);
}

// Several threads compute a micro-batch each.
TEST(ParameterStore, AddsPartialSumsToTheGradientsOfTheirMicroBatch) {
  Fixture f;
  std::vector<Tensor> first;
  std::vector<Tensor> second;
  {
    const SeparateGradients separate(f.store.gradients(), first);
    f.store.gradients().add(f.bias, at::ones({3, 6}));
  }
  {
    const SeparateGradients separate(f.store.gradients(), second);
    f.store.gradients().add_pending();
  }
  ASSERT_TRUE(first[f.bias.id()].defined());
  EXPECT_TRUE((first[f.bias.id()] == 3.0).all().item<bool>());
  EXPECT_FALSE(second[f.bias.id()].defined());
}

TEST(ParameterStore, RefusesToFreezeWhatHasAGradient) {
  Fixture f;
  f.store.gradients().add(f.matrix, at::ones({6, 4}));
  EXPECT_THROW(f.store.freeze([](const std::string&) { return true; }), std::logic_error);
}

TEST(ParameterStore, TakesTensorsForItsMemoryWhereTheyAreAsItStoresThem) {
  for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kBFloat16}) {
    Fixture made(format);
    made.store.freeze([](const std::string&) { return true; });
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Tensor values = at::arange(24).view({6, 4}).to(type);
      made.store.share(made.first(), values);
      EXPECT_TRUE(made.store.values(made.matrix).equal(values.to(at::kFloat)));
      EXPECT_EQ(made.store.tensor(made.matrix).const_data_ptr() == values.const_data_ptr(),
                type == traits_of(format).type);
    }
  }
}

TEST(ParameterStore, TakesCodesForItsMemory) {
  const Weights weights = {Weight(0, "matrix", {4, 64}, ParameterRole::kLinear)};
  ParameterStore store(weights, {{.weight = WeightFormat::kNf4, .trainable = false}});
  const ParameterTensors stored = traits_of(WeightFormat::kNf4).allocate({4, 64}, at::kCPU);
  traits_of(WeightFormat::kNf4).assign(stored, at::randn({4, 64}));
  store.share(store.parameters()[0],
              QuantizedValues{.sizes = {4, 64}, .codes = stored.weight, .scales = stored.scales});
  EXPECT_EQ(store.tensor(weights[0]).const_data_ptr(), stored.weight.const_data_ptr());
}

// Stacks [E, in, out] are stored as [E, out, in]; in another format they are what they mean.
TEST(ParameterStore, TakesStacksInMxfp4ForItsMemoryAndUnpacksThemElsewhere) {
  const Weights weights = {Weight(0, "stack", {3, 64, 5}, ParameterRole::kStackedLinear)};
  const QuantizedValues values = {.format = WeightFormat::kMxfp4,
                                  .sizes = {3, 64, 5},
                                  .codes = at::randint(256, {3 * 64 * 5 / 2}, at::kByte),
                                  .scales = at::randint(120, 130, {3 * 5 * 2}, at::kByte)};
  const Tensor all = kernels::dequantize_mxfp4(values.codes, values.scales, 0, 960, at::kFloat)
                         .view({3, 5, 64})
                         .transpose(1, 2);
  ParameterStore packed(weights, {{.weight = WeightFormat::kMxfp4, .trainable = false}});
  packed.share(packed.parameters()[0], values);
  EXPECT_EQ(packed.tensor(weights[0]).const_data_ptr(), values.codes.const_data_ptr());
  EXPECT_TRUE(packed.values(weights[0]).equal(all));
  EXPECT_TRUE(packed.values_of_rows(weights[0], 1, 2).equal(all.narrow(0, 1, 2)));
  ParameterStore whole(weights, {{.weight = WeightFormat::kFloat32, .trainable = false}});
  whole.share(whole.parameters()[0], values);
  EXPECT_TRUE(whole.values(weights[0]).equal(all));
}

}  // namespace
}  // namespace finetune
