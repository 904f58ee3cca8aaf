// SPDX-License-Identifier: MIT
#include "finetune/state/optimizer_files.h"

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/state/parameter_files.h"
#include "state/small_optimizer.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::expect_same_states;
using testing::expect_same_weights;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryWriter;
using testing::message_of;
using testing::options_of;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

constexpr OptimizerRates kRates = {.learning_rate = 1e-4, .initial_learning_rate = 1e-3};

// Saves weights and states in checkpoint format; returns the number of bytes.
uint64_t save(const SmallOptimizer& from, const TemporaryFolder& folder) {
  MemoryWriter model;
  write_safetensors(model, checkpoint_tensors(from.store));
  folder.write("model.safetensors", model.content());
  uint64_t bytes = model.content().size();
  for (const auto& file : optimizer_checkpoint_files(*from.optimizer, kRates)) {
    MemoryWriter writer;
    file.write(writer);
    folder.write(file.name, writer.content());
    bytes += writer.content().size();
  }
  return bytes;
}

RestoredOptimizer restore(SmallOptimizer& to, const TemporaryFolder& folder) {
  return restore_optimizer(*to.optimizer, FileSystem::local(), folder.path());
}

class OptimizerFiles : public ::testing::TestWithParam<std::tuple<std::string, WeightFormat>> {};

TEST_P(OptimizerFiles, GoOnBitForBit) {
  const auto& [kind, format] = GetParam();
  SmallOptimizer unbroken(options_of(kind), format);
  unbroken.update(0, 3);
  const TemporaryFolder folder;
  save(unbroken, folder);

  SmallOptimizer resumed(options_of(kind), format);
  const RestoredParameters weights =
      restore_parameters(resumed.store, FileSystem::local(), folder.path());
  EXPECT_TRUE(weights.exact);
  EXPECT_EQ(weights.line, "");
  const RestoredOptimizer states = restore(resumed, folder);
  EXPECT_TRUE(states.found);
  EXPECT_TRUE(states.exact);
  EXPECT_THAT(states.lines, IsEmpty());
  expect_same_weights(unbroken.store, resumed.store);
  expect_same_states(*unbroken.optimizer, *resumed.optimizer);

  unbroken.update(3, 2);
  resumed.update(3, 2);
  expect_same_weights(unbroken.store, resumed.store);
  expect_same_states(*unbroken.optimizer, *resumed.optimizer);
}

INSTANTIATE_TEST_SUITE_P(OfEveryKindAndFormat, OptimizerFiles,
                         ::testing::Combine(::testing::ValuesIn(optimizer_kinds()),
                                            ::testing::Values(WeightFormat::kFloat32,
                                                              WeightFormat::kBFloat16,
                                                              WeightFormat::kSplit)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::to_string(static_cast<int>(std::get<1>(test.param)));
                         });

std::vector<std::string> names_of(const std::string& kind, WeightFormat format) {
  const SmallOptimizer optimizer(options_of(kind), format);
  std::vector<std::string> names;
  for (const auto& file : optimizer_checkpoint_files(*optimizer.optimizer, kRates)) {
    names.push_back(file.name);
  }
  return names;
}

TEST(OptimizerFiles, AreThoseOfTransformersWhereItKnowsTheStates) {
  for (const std::string kind : {"adamw", "adamw_8bit", "adafactor", "sgd"}) {
    EXPECT_THAT(names_of(kind, WeightFormat::kBFloat16), ElementsAre("optimizer.pt"));
    EXPECT_THAT(names_of(kind, WeightFormat::kSplit),
                ElementsAre("optimizer.pt", "optimizer.safetensors"));
    EXPECT_TRUE(transformers_reads_states(*SmallOptimizer(options_of(kind)).optimizer));
  }
  const std::string companded = "adamw_companded_8bit";
  EXPECT_THAT(names_of(companded, WeightFormat::kFloat32), ElementsAre("optimizer.safetensors"));
  EXPECT_THAT(names_of(companded, WeightFormat::kSplit), ElementsAre("optimizer.safetensors"));
  EXPECT_FALSE(transformers_reads_states(*SmallOptimizer(options_of(companded)).optimizer));
}

TEST(OptimizerFiles, ConvertTheMomentsOfAnotherKind) {
  const std::vector<std::string> kinds = {"adamw", "adamw_8bit", "adamw_companded_8bit"};
  for (const std::string& from : kinds) {
    for (const std::string& to : kinds) {
      if (from == to) continue;
      SmallOptimizer old(options_of(from));
      old.update(0, 4);
      const TemporaryFolder folder;
      save(old, folder);
      SmallOptimizer resumed(options_of(to));
      const RestoredOptimizer result = restore(resumed, folder);
      EXPECT_TRUE(result.found);
      EXPECT_FALSE(result.exact);
      ASSERT_EQ(result.lines.size(), 1U);
      EXPECT_THAT(result.lines[0], HasSubstr("optimizer states: " + from));
      EXPECT_THAT(result.lines[0], HasSubstr("-> " + to));
      for (size_t i = 0; i < resumed.optimizer->slots().size(); ++i) {
        const Optimizer::Slot& slot = resumed.optimizer->slots()[i];
        EXPECT_EQ(slot.updates, old.optimizer->slots()[i].updates);
        if (slot.updates == 0) continue;
        const Moments before = moments_of(*old.optimizer, old.optimizer->slots()[i]);
        const Moments after = moments_of(*resumed.optimizer, slot);
        const double m = before.exp_avg.abs().max().item<double>();
        const double v = before.exp_avg_sq.max().item<double>();
        EXPECT_TRUE(at::allclose(before.exp_avg, after.exp_avg, 0.1, 0.02 * m)) << from << to << i;
        EXPECT_TRUE(at::allclose(before.exp_avg_sq, after.exp_avg_sq, 0.1, 0.02 * v))
            << from << to << i;
      }
    }
  }
}

TEST(OptimizerFiles, ConvertNothingBetween32BitFormats) {
  OptimizerOptions all_at_32_bits = options_of("adamw_8bit");
  all_at_32_bits.arguments["min_8bit_size"] = int64_t{1 << 20};
  SmallOptimizer old(all_at_32_bits);
  old.update(0, 2);
  const TemporaryFolder folder;
  save(old, folder);
  SmallOptimizer resumed(options_of("adamw"));
  EXPECT_THAT(restore(resumed, folder).lines,
              ElementsAre("optimizer states: adamw_8bit -> adamw (32 bits), converted"));
  for (size_t i = 0; i < resumed.optimizer->slots().size(); ++i) {
    Optimizer::Slot& ours = resumed.optimizer->slots()[i];
    Optimizer::Slot& theirs = old.optimizer->slots()[i];
    if (theirs.updates == 0) continue;
    EXPECT_TRUE(testing::same_bytes(*ours.find("exp_avg"), *theirs.find("state1")));
    EXPECT_TRUE(testing::same_bytes(*ours.find("exp_avg_sq"), *theirs.find("state2")));
  }
}

TEST(OptimizerFiles, ConvertSingleTensorsThatAreKeptAtAnotherWidth) {
  SmallOptimizer old(options_of("adamw_8bit"));
  old.update(0, 2);
  const TemporaryFolder folder;
  save(old, folder);
  OptimizerOptions wide = options_of("adamw_8bit");
  wide.arguments["min_8bit_size"] = int64_t{1 << 20};
  SmallOptimizer resumed(wide);
  const RestoredOptimizer result = restore(resumed, folder);
  EXPECT_FALSE(result.exact);
  EXPECT_THAT(result.lines, ElementsAre(HasSubstr("those of 1 tensors are kept at another width")));
  EXPECT_FALSE(resumed.optimizer->slots()[0].is_8bit);
  EXPECT_EQ(resumed.optimizer->slots()[0].find("state1")->scalar_type(), at::kFloat);
}

TEST(OptimizerFiles, LeaveOutStatesWithoutMomentsAndSaySo) {
  SmallOptimizer old(options_of("sgd"));
  old.update(0, 2);
  const TemporaryFolder folder;
  save(old, folder);
  SmallOptimizer resumed(options_of("adamw"));
  const RestoredOptimizer fresh = restore(resumed, folder);
  EXPECT_TRUE(fresh.found);
  EXPECT_FALSE(fresh.exact);
  EXPECT_THAT(fresh.lines,
              ElementsAre(AllOf(HasSubstr("optimizer.pt: optim: the state of 'sgd' cannot become"),
                                HasSubstr("the optimizer starts fresh"))));
  EXPECT_EQ(resumed.optimizer->slots()[0].updates, 0);
}

TEST(OptimizerFiles, MayBeMissing) {
  const TemporaryFolder folder;
  SmallOptimizer optimizer(options_of("adamw"));
  EXPECT_FALSE(restore(optimizer, folder).found);
}

TEST(OptimizerFiles, BeginMomentumThatTheCheckpointHasNot) {
  OptimizerOptions plain = options_of("sgd");
  plain.arguments["momentum"] = 0.0;
  SmallOptimizer old(plain);
  old.update(0, 2);
  const TemporaryFolder folder;
  save(old, folder);
  SmallOptimizer resumed(options_of("sgd"));
  EXPECT_TRUE(restore(resumed, folder).exact);
  EXPECT_EQ(resumed.optimizer->slots()[0].updates, 0);
  EXPECT_THAT(resumed.optimizer->slots()[0].state, IsEmpty());
}

// For 84M parameters (EsperBERTo): at most 410 MiB with split weights, 500 MiB with float32.
TEST(OptimizerFiles, AreSmallWithCompandedStates) {
  constexpr double kMiB = 1 << 20;
  constexpr double kParameters = 83.5e6;
  for (const auto& [format, bytes_a_value, limit] :
       std::vector<std::tuple<WeightFormat, double, double>>{
           {WeightFormat::kSplit, 2 + 1 + 2 + 8.0 / 128, 410.0},
           {WeightFormat::kFloat32, 4 + 2 + 8.0 / 128, 500.0}}) {
    EXPECT_LT(bytes_a_value * kParameters / kMiB, limit);
    SmallOptimizer small(options_of("adamw_companded_8bit"), format);
    small.update(0, 1);
    const TemporaryFolder folder;
    double values = 0;
    for (const Parameter& parameter : small.store.parameters()) {
      values += static_cast<double>(parameter.weight.numel());
    }
    // One more group for the remainder of each tensor, and a header for each file.
    constexpr double kHeaders = 4096;
    EXPECT_LT(static_cast<double>(save(small, folder)), bytes_a_value * values + kHeaders);
    EXPECT_LE(static_cast<double>(optimizer_file_bytes(*small.optimizer)),
              (bytes_a_value - (format == WeightFormat::kSplit ? 2 : 4)) * values + 64);
  }
}

}  // namespace
}  // namespace finetune
