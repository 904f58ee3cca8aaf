// SPDX-License-Identifier: MIT
// Parameter groups with their own optimizers and options, saved to and restored from checkpoint
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/parameter_files.h"
#include "finetune/state/standard_parts.h"
#include "finetune/tensor/torch_file.h"
#include "state/small_optimizer.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::expect_same_states;
using testing::expect_same_weights;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryWriter;
using testing::options_of;
using testing::same_bytes;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

constexpr OptimizerRates kGroupRates = {.learning_rate = 1e-4, .initial_learning_rate = 1e-3};

bool is_matrix(const Parameter& parameter) { return parameter.weight.dim() == 2; }

// Uses `kind` for matrices at half the learning rate, and AdamW for the rest.
std::vector<OptimizerUse> matrices_with(const std::string& kind) {
  return {{.takes = is_matrix, .options = options_of(kind), .learning_rate_factor = 0.5},
          {.takes = {}, .options = options_of("adamw")}};
}

// Saves a checkpoint and returns the names of its optimizer files.
std::vector<std::string> save_groups(const SmallOptimizer& from, const TemporaryFolder& folder) {
  MemoryWriter model;
  write_safetensors(model, checkpoint_tensors(from.store));
  folder.write("model.safetensors", model.content());
  std::vector<std::string> names;
  for (const auto& file : optimizer_checkpoint_files(*from.optimizer, kGroupRates)) {
    MemoryWriter writer;
    file.write(writer);
    folder.write(file.name, writer.content());
    names.push_back(file.name);
  }
  return names;
}

RestoredOptimizer restore_groups(SmallOptimizer& to, const TemporaryFolder& folder) {
  (void)restore_parameters(to.store, FileSystem::local(), folder.path());
  return restore_optimizer(*to.optimizer, FileSystem::local(), folder.path());
}

TEST(OptimizerGroups, AreEachUpdatedByTheirOwnKind) {
  SmallOptimizer mixed(matrices_with("sgd"));
  SmallOptimizer adamw(options_of("adamw"));
  SmallOptimizer sgd(options_of("sgd"));
  mixed.update(0, 1);
  adamw.update(0, 1);
  EXPECT_TRUE(same_bytes(mixed.store.parameters()[1].weight.detach(),
                         adamw.store.parameters()[1].weight.detach()));
  for (size_t p = 0; p < 2; ++p) {
    sgd.store.parameters()[p].gradient =
        testing::wave(sgd.store.parameters()[p].weight.sizes(), 0).mul(0.01);
  }
  sgd.optimizer->step(0.5 * 1e-3, 1.0, 0);
  EXPECT_TRUE(same_bytes(mixed.store.parameters()[0].weight.detach(),
                         sgd.store.parameters()[0].weight.detach()));
  EXPECT_EQ(mixed.optimizer->only_kind(), nullptr);
  EXPECT_FALSE(mixed.optimizer->is_blockwise());
  EXPECT_TRUE(adamw.optimizer->is_blockwise());
}

TEST(OptimizerGroups, GoOnBitForBit) {
  for (const std::string kind : {"sgd", "adafactor", "adamw_8bit", "adamw_companded_8bit"}) {
    for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kSplit}) {
      SCOPED_TRACE(kind);
      SmallOptimizer unbroken(matrices_with(kind), format);
      unbroken.update(0, 3);
      const TemporaryFolder folder;
      EXPECT_THAT(save_groups(unbroken, folder), ElementsAre("optimizer.safetensors"));
      SmallOptimizer resumed(matrices_with(kind), format);
      const RestoredOptimizer states = restore_groups(resumed, folder);
      EXPECT_TRUE(states.found);
      EXPECT_TRUE(states.exact);
      EXPECT_THAT(states.lines, IsEmpty());
      expect_same_states(*unbroken.optimizer, *resumed.optimizer);
      unbroken.update(3, 2);
      resumed.update(3, 2);
      expect_same_weights(unbroken.store, resumed.store);
      expect_same_states(*unbroken.optimizer, *resumed.optimizer);
    }
  }
}

TEST(OptimizerGroups, OfOneKindAreGroupsOfOptimizerPt) {
  std::vector<OptimizerUse> uses = matrices_with("adamw");
  uses[0].options.weight_decay = 0.3;
  SmallOptimizer unbroken(uses);
  unbroken.update(0, 2);
  const TemporaryFolder folder;
  EXPECT_THAT(save_groups(unbroken, folder), ElementsAre("optimizer.pt"));
  const TorchValue file = read_torch_file(FileSystem::local(), folder / "optimizer.pt");
  const auto& groups = file.at("param_groups").as_sequence();
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].at("lr").as_double(), 0.5e-4);
  EXPECT_EQ(groups[0].at("initial_lr").as_double(), 0.5e-3);
  EXPECT_EQ(groups[0].at("weight_decay").as_double(), 0.3);
  EXPECT_EQ(groups[0].at("params").as_sequence().size(), 3U);
  EXPECT_EQ(groups[3].at("lr").as_double(), 1e-4);
  SmallOptimizer resumed(uses);
  EXPECT_TRUE(restore_groups(resumed, folder).exact);
  unbroken.update(2, 2);
  resumed.update(2, 2);
  expect_same_weights(unbroken.store, resumed.store);
}

TEST(OptimizerGroups, ConvertWhereTheKindOfSomeChanges) {
  SmallOptimizer mixed(matrices_with("adamw_8bit"));
  mixed.update(0, 2);
  const TemporaryFolder folder;
  (void)save_groups(mixed, folder);
  SmallOptimizer uniform(options_of("adamw"));
  const RestoredOptimizer converted = restore_groups(uniform, folder);
  EXPECT_FALSE(converted.exact);
  EXPECT_THAT(converted.lines,
              ElementsAre("optimizer states: adamw_8bit -> adamw (32 bits), converted"));
  SmallOptimizer other(matrices_with("sgd"));
  EXPECT_THAT(restore_groups(other, folder).lines,
              ElementsAre(HasSubstr("the state of 'adamw_8bit' cannot become one of 'sgd'")));
}

TEST(OptimizerGroups, LeaveOutParametersThatAreInNone) {
  SmallOptimizer small(options_of("sgd"));
  Optimizer few(small.store, {{.options = options_of("sgd"), .parameters = {1}}});
  const Tensor before = small.store.parameters()[0].weight.detach().clone();
  for (Parameter& parameter : small.store.parameters()) {
    parameter.gradient = testing::wave(parameter.weight.sizes(), 1);
  }
  few.step(1e-2, 1.0, 0);
  few.step_one(0, 1e-2, 1.0, 0);
  EXPECT_TRUE(same_bytes(small.store.parameters()[0].weight.detach(), before));
  EXPECT_EQ(few.slots().size(), 1U);
  EXPECT_EQ(few.slots()[0].updates, 1);
}

TEST(OptimizerGroups, NameAParameterThatTheirKindRefuses) {
  NamedTensors parameters = {{"cube", at::zeros({2, 3, 4})}};
  ParameterStore store(parameters, {}, {});
  EXPECT_GOLDEN(testing::message_of<Error>(
      [&] { (void)make_optimizer(store, {true}, options_of("adafactor")); }));
}

TEST(OptimizerGroups, HaveARateEachInTheSchedulesFileAndAreAllNamed) {
  SmallOptimizer saved(matrices_with("sgd"));
  const TemporaryFolder folder;
  (void)save_groups(saved.update(0, 2), folder);

  const std::unique_ptr<Schedule> schedule =
      make_schedule({.type = "linear", .learning_rate = 1e-3, .max_steps = 4, .kwargs_json = ""});
  RunState state;
  state.updates = 2;
  const RateSource rates{.schedule = schedule, .state = state, .initial_learning_rate = 1e-3};
  SmallOptimizer resumed(matrices_with("sgd"));
  const auto part = optimizer_part(*resumed.optimizer, rates, nullptr);
  part->load({.files = FileSystem::local(), .path = folder.path()});
  EXPECT_EQ(part->restored(), "optimizer (sgd and adamw, 2 updates)");

  MemoryWriter writer;
  schedule_part(*resumed.optimizer, rates)->save({}).at(0).write(writer);
  folder.write("scheduler.pt", writer.content());
  const TorchValue file = read_torch_file(FileSystem::local(), folder / "scheduler.pt");
  const auto rates_in = [&](const char* name) {
    std::vector<double> list;
    for (const TorchValue& rate : file.at(name).as_sequence()) list.push_back(rate.as_double());
    return list;
  };
  // Matrices and the rest, each with and without weight decay, after half of the updates.
  EXPECT_THAT(rates_in("base_lrs"), ElementsAre(5e-4, 5e-4, 1e-3, 1e-3));
  EXPECT_THAT(rates_in("_last_lr"), ElementsAre(2.5e-4, 2.5e-4, 5e-4, 5e-4));
  EXPECT_EQ(file.at("lr_lambdas").as_sequence().size(), 4U);
}

}  // namespace
}  // namespace finetune
