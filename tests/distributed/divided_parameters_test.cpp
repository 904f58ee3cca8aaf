// SPDX-License-Identifier: MIT
// Parameters that ranks divide among them: which values each keeps, and that all see the same.
#include "finetune/distributed/divided_parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "distributed/thread_world.h"
#include "finetune/kernels/sum_of_squares.h"

namespace finetune::testing {
namespace {

using ::testing::ElementsAre;
using Kind = ExchangeStep::Kind;

constexpr int64_t kUnit = kDivisionUnit;

TEST(PartOfValues, IsWholeUnitsAndLessAtTheEnd) {
  const auto parts = [](int64_t values, int64_t ranks) {
    std::vector<std::pair<int64_t, int64_t>> all;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const ValueRange part = part_of_values(values, rank, ranks);
      all.emplace_back(part.first, part.count);
    }
    return all;
  };
  EXPECT_THAT(parts(4 * kUnit, 2),
              ElementsAre(std::pair(0, 2 * kUnit), std::pair(2 * kUnit, 2 * kUnit)));
  EXPECT_THAT(parts(2 * kUnit + 5, 2),
              ElementsAre(std::pair(0, 2 * kUnit), std::pair(2 * kUnit, 5)));
  EXPECT_THAT(parts(kUnit + 1, 3),
              ElementsAre(std::pair(0, kUnit), std::pair(kUnit, 1), std::pair(kUnit + 1, 0)));
  EXPECT_THAT(parts(7, 1), ElementsAre(std::pair(0, 7)));
}

// Two layers with a matrix each, and a small vector, all divided but the vector.
struct Divided {
  Divided(World& world, WeightFormat format, bool keeps_whole = false,
          SentFormat sent = SentFormat::kFloat32)
      : weights{Weight(0, "model.layers.0.w", {256, 200}, ParameterRole::kLinear),
                Weight(1, "model.layers.1.w", {256, 200}, ParameterRole::kLinear),
                Weight(2, "model.norm.weight", {8}, ParameterRole::kOther)},
        store(weights, formats(world, format)) {
    for (Parameter& parameter : store.parameters()) store.assign(parameter, values(parameter));
    const auto gather = [](size_t i) { return ExchangeStep{Kind::kGather, i}; };
    const auto scatter = [](size_t i) { return ExchangeStep{Kind::kScatter, i}; };
    parameters = std::make_unique<DividedParameters>(
        world, store,
        DividedParameters::Options{
            .scripts = {.training = {gather(0), gather(1), scatter(1), gather(0), scatter(0)},
                        .forward = {gather(0), gather(1)}},
            .keeps_whole = keeps_whole,
            .sent = sent,
            .bucket_bytes = 4 * kUnit * 4});
  }

  static std::vector<ParameterFormat> formats(World& world, WeightFormat format) {
    ParameterFormat divided{.weight = format, .division = {world.rank(), world.size()}};
    divided.trainable = format != WeightFormat::kNf4Nested;
    return {divided, divided, {}};
  }
  static Tensor values(const Parameter& parameter) {
    const at::IntArrayRef sizes = parameter.handle.sizes();
    const Tensor all = at::arange(parameter.handle.numel(), at::kFloat).view(sizes);
    return (all * 0.37).sin() * (1.0 + static_cast<double>(parameter.handle.id()));
  }
  // What a store without division makes of the values.
  [[nodiscard]] Tensor undivided(size_t index) const {
    ParameterStore whole(
        weights,
        std::vector<ParameterFormat>(3, {.weight = store.parameters()[index].format.weight,
                                         .trainable = store.parameters()[index].format.trainable}));
    whole.assign(whole.parameters()[index], values(whole.parameters()[index]));
    return whole.values(weights[index]);
  }
  void backward(size_t index, const Tensor& gradient) {
    store.gradients().add(weights[index], gradient);
    store.gradients().complete({weights[index]});
  }
  [[nodiscard]] Tensor gradient(size_t index, double factor) const {
    return values(store.parameters()[index]) * factor;
  }

  Weights weights;
  ParameterStore store;
  std::unique_ptr<DividedParameters> parameters;
};

TEST(DividedParameters, AreReadAsIfEachRankHadAllOfThem) {
  for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                    WeightFormat::kSplit, WeightFormat::kNf4Nested}) {
    for (const int64_t ranks : {2, 3, 8}) {
      in_processes(ranks, [format](World& world) {
        Divided divided(world, format);
        for (size_t i = 0; i < 2; ++i) {
          const Parameter& parameter = divided.store.parameters()[i];
          EXPECT_LE(parameter.part().count, (4 + world.size() - 1) / world.size() * kUnit);
          EXPECT_TRUE(divided.store.values(divided.weights[i]).equal(divided.undivided(i)));
          EXPECT_TRUE(divided.store.values_of_rows(divided.weights[i], 5, 250)
                          .equal(divided.undivided(i).narrow(0, 5, 250)));
        }
      });
    }
  }
}

TEST(DividedParameters, AreFreedWhenAnotherLayerIsRead) {
  in_processes(2, [](World& world) {
    Divided divided(world, WeightFormat::kFloat32);
    std::weak_ptr<void> seen;
    Tensor first = divided.store.values(divided.weights[0]);
    (void)divided.store.values(divided.weights[1]);
    EXPECT_EQ(first.storage().use_count(), 1U);
  });
  in_processes(2, [](World& world) {
    Divided divided(world, WeightFormat::kFloat32, /*keeps_whole=*/true);
    Tensor first = divided.store.values(divided.weights[0]);
    (void)divided.store.values(divided.weights[1]);
    EXPECT_GT(first.storage().use_count(), 1U);
    divided.parameters->changed();
    EXPECT_EQ(first.storage().use_count(), 1U);
  });
}

// Rank 1 has a gradient of layer 1 alone, rank 2 computes nothing.
TEST(DividedParameters, SumGradientsWhateverEachRankComputes) {
  in_processes(3, [](World& world) {
    Divided divided(world, WeightFormat::kFloat32);
    DividedParameters& parameters = *divided.parameters;
    parameters.begin_sums();
    for (const double factor : {1.0, 0.5}) {
      parameters.begin_pass(ParameterExchange::Pass::kTraining);
      if (world.rank() < 2) {
        (void)divided.store.values(divided.weights[1]);
        divided.backward(1, divided.gradient(1, factor));
      }
      if (world.rank() == 0) divided.backward(0, divided.gradient(0, factor));
      parameters.end_pass();
    }
    EXPECT_EQ(parameters.has_gradient(0), world.rank() == 0);
    EXPECT_EQ(parameters.has_gradient(1), world.rank() < 2);
    parameters.finish_sums();
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const Parameter& parameter = divided.store.parameters()[i];
      const Tensor one = divided.gradient(i, 1.0);
      const Tensor half = divided.gradient(i, 0.5);
      const Tensor all = i == 0 ? one + half : (one + one) + (half + half);
      const ValueRange part = parameter.part();
      EXPECT_TRUE(parameter.gradient.equal(all.view(-1).narrow(0, part.first, part.count)));
    }
  });
}

TEST(DividedParameters, SumLogicalShardsInTheOrderOfOneProcess) {
  constexpr int64_t kShards = 7;
  const auto of_shard = [](const Divided& divided, int64_t shard) {
    return (divided.gradient(0, 1.0 + 0.1 * static_cast<double>(shard)) * 1e3).tan();
  };
  std::vector<Tensor> expected(1);
  in_processes(1, [&](World& world) {
    Divided divided(world, WeightFormat::kFloat32);
    ShardSum sum(world, kShards, {{.first = 0, .count = kShards}});
    for (int64_t shard = 0; shard < kShards; ++shard) sum.add({of_shard(divided, shard)});
    expected[0] = at::zeros({256, 200});
    sum.finish(expected, 1 << 20);
  });
  for (const int64_t ranks : {2, 4}) {
    in_processes(ranks, [&](World& world) {
      Divided divided(world, WeightFormat::kFloat32);
      std::vector<ShardRange> shares;
      const int64_t most = (kShards + ranks - 1) / ranks;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t first = std::min(kShards, rank * most);
        shares.push_back({.first = first, .count = std::min(kShards - first, most)});
      }
      const ShardRange own = shares[static_cast<size_t>(world.rank())];
      divided.parameters->begin_sums({}, kShards, shares);
      for (int64_t i = 0; i < most; ++i) {
        divided.parameters->begin_pass(ParameterExchange::Pass::kTraining);
        if (i < own.count) divided.backward(0, of_shard(divided, own.first + i));
        divided.parameters->end_pass();
      }
      divided.parameters->finish_sums();
      const Parameter& parameter = divided.store.parameters()[0];
      const ValueRange part = parameter.part();
      EXPECT_TRUE(parameter.gradient.equal(expected[0].view(-1).narrow(0, part.first, part.count)));
    });
  }
}

TEST(DividedParameters, MayBeSentInHalfTheBytes) {
  in_processes(2, [](World& world) {
    Divided divided(world, WeightFormat::kFloat32, false, SentFormat::kBFloat16);
    divided.parameters->begin_sums();
    divided.parameters->begin_pass(ParameterExchange::Pass::kTraining);
    divided.backward(1, divided.gradient(1, 1.0));
    divided.backward(0, divided.gradient(0, 1.0));
    divided.parameters->end_pass();
    divided.parameters->finish_sums();
    const Parameter& parameter = divided.store.parameters()[0];
    const ValueRange part = parameter.part();
    const Tensor exact = divided.gradient(0, 2.0).view(-1).narrow(0, part.first, part.count);
    const Tensor rounded = divided.gradient(0, 1.0).to(at::kBFloat16).to(at::kFloat) * 2.0;
    EXPECT_TRUE(parameter.gradient.equal(rounded.view(-1).narrow(0, part.first, part.count)));
    EXPECT_FALSE(parameter.gradient.equal(exact));
  });
}

// A rank that is out of memory in its pass still takes part in what the others wait for.
TEST(DividedParameters, TakePartInForwardPassesThatARankLeaves) {
  in_processes(2, [](World& world) {
    Divided divided(world, WeightFormat::kFloat32);
    ParameterExchange& exchange = *divided.store.exchange();
    if (world.rank() == 0) {
      for (int pass = 0; pass < 2; ++pass) {
        exchange.begin_pass(ParameterExchange::Pass::kForward);
        EXPECT_TRUE(divided.store.values(divided.weights[0]).equal(divided.undivided(0)));
        EXPECT_TRUE(divided.store.values(divided.weights[1]).equal(divided.undivided(1)));
        exchange.end_pass();
      }
    } else {
      exchange.begin_pass(ParameterExchange::Pass::kForward);
      (void)divided.store.values(divided.weights[0]);
    }
    exchange.take_part(2);
    exchange.take_part(1);
  });
}

TEST(DividedParameters, AreReadByTheFirstRankAlone) {
  in_processes(3, [](World& world) {
    Divided divided(world, WeightFormat::kBFloat16);
    int read = 0;
    divided.parameters->lead([&] {
      for (const size_t i : {size_t{1}, size_t{0}, size_t{0}}) {
        EXPECT_TRUE(divided.store.values(divided.weights[i]).equal(divided.undivided(i)));
        ++read;
      }
    });
    EXPECT_EQ(read, world.is_first() ? 3 : 0);
    const auto fails = [] { throw std::runtime_error("of rank 0"); };
    if (world.is_first()) {
      EXPECT_THROW(divided.parameters->lead(fails), std::runtime_error);
    } else {
      divided.parameters->lead(fails);
    }
  });
}

TEST(DividedParameters, HaveTheNormOfOneProcess) {
  double expected = 0.0;
  const auto fill = [](Divided& divided) {
    for (Parameter& parameter : divided.store.parameters()) {
      const ValueRange part = parameter.part();
      const Tensor all = (Divided::values(parameter) * 1e2).tan();
      parameter.gradient =
          parameter.is_divided() ? all.view(-1).narrow(0, part.first, part.count).clone() : all;
    }
  };
  in_processes(1, [&](World& world) {
    Divided divided(world, WeightFormat::kFloat32);
    fill(divided);
    std::vector<Tensor> gradients;
    for (const Parameter& parameter : divided.store.parameters()) {
      gradients.push_back(parameter.gradient);
    }
    expected = std::sqrt(sum_of_all_squares(gradients));
    EXPECT_EQ(gradient_norm(divided.store, world), expected);
  });
  for (const int64_t ranks : {2, 3}) {
    in_processes(ranks, [&](World& world) {
      Divided divided(world, WeightFormat::kFloat32);
      fill(divided);
      EXPECT_EQ(gradient_norm(divided.store, world), expected);
    });
  }
}

TEST(ByLayers, PutsALayersGathersBeforeItsScatters) {
  Weights weights;
  for (const char* name : {"emb", "model.layers.0.a", "model.layers.0.b", "model.layers.10.a"}) {
    weights.emplace_back(weights.size(), name, at::IntArrayRef{2, 2}, ParameterRole::kLinear);
  }
  const ParameterStore store(weights, WeightFormat::kFloat32, GradientFormat::kFloat32);
  const std::vector<ExchangeStep> steps = {
      {Kind::kGather, 0},  {Kind::kGather, 2}, {Kind::kScatter, 2}, {Kind::kGather, 1},
      {Kind::kScatter, 1}, {Kind::kGather, 3}, {Kind::kScatter, 0}};
  EXPECT_THAT(by_layers(steps, store.parameters()),
              ElementsAre(ExchangeStep{Kind::kGather, 0}, ExchangeStep{Kind::kGather, 2},
                          ExchangeStep{Kind::kGather, 1}, ExchangeStep{Kind::kScatter, 2},
                          ExchangeStep{Kind::kScatter, 1}, ExchangeStep{Kind::kGather, 3},
                          ExchangeStep{Kind::kScatter, 0}));
}

}  // namespace
}  // namespace finetune::testing
