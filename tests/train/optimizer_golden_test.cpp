// SPDX-License-Identifier: MIT
// Compares files of torch, transformers and bitsandbytes (data/make_optimizers.py).
#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/scaler_file.h"
#include "state/small_optimizer.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::options_of;
using testing::same_bytes;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

const std::string kData = source_dir() + "/tests/fixtures/state/";

RestoredOptimizer load_golden(const std::string& name, SmallOptimizer& into) {
  const TemporaryFolder folder;
  folder.write("optimizer.pt", FileSystem::local().read_all(kData + "optimizer_" + name + ".pt"));
  return restore_optimizer(*into.optimizer, FileSystem::local(), folder.path());
}

class OptimizerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(OptimizerGolden, IsReadExactlyAndWrittenAsItWas) {
  SmallOptimizer resumed(options_of(GetParam()));
  const RestoredOptimizer result = load_golden(GetParam(), resumed);
  EXPECT_TRUE(result.exact);
  EXPECT_THAT(result.lines, IsEmpty());

  const TorchValue golden =
      read_torch_file(FileSystem::local(), kData + "optimizer_" + GetParam() + ".pt");
  const TorchValue ours = optimizer_to_torch(
      *resumed.optimizer, {.learning_rate = 1e-3, .initial_learning_rate = 1e-3});
  const auto& groups = golden.at("param_groups").as_sequence();
  for (size_t i = 0; i < groups.size(); ++i) {
    const TorchValue& group = ours.at("param_groups").as_sequence()[i];
    ASSERT_EQ(group.as_dict().items.size(), groups[i].as_dict().items.size());
    for (const auto& [key, value] : groups[i].as_dict().items) {
      const TorchValue& mine = group.at(key);
      EXPECT_EQ(mine.variant().index(), value.variant().index()) << std::get<std::string>(key);
      if (value.is_double()) {
        EXPECT_EQ(mine.as_double(), value.as_double());
      }
      if (value.is_bool()) {
        EXPECT_EQ(mine.as_bool(), value.as_bool());
      }
      if (value.is_int()) {
        EXPECT_EQ(mine.as_int(), value.as_int());
      }
    }
  }
  const TorchDict& state = golden.at("state").as_dict();
  ASSERT_EQ(ours.at("state").as_dict().items.size(), state.items.size());
  for (const auto& [key, entry] : state.items) {
    const TorchValue* hidden = entry.find("__bnb_optimizer_quant_state__");
    for (const auto& [name, value] : (hidden == nullptr ? entry : *hidden).as_dict().items) {
      const std::string& state_name = std::get<std::string>(name);
      if (!value.is_tensor()) continue;
      const Tensor& mine = ours.at("state").at(key).at(name).as_tensor();
      if (state_name.starts_with("qmap")) {
        // The last bit is that of torch.linspace, which differs between processors.
        EXPECT_TRUE(at::allclose(mine, value.as_tensor(), 1e-6, 1e-12)) << state_name;
      } else {
        EXPECT_TRUE(same_bytes(mine, value.as_tensor())) << state_name;
      }
    }
  }
  for (const Optimizer::Slot& slot : resumed.optimizer->slots()) {
    const bool counts = GetParam() != "sgd";
    EXPECT_EQ(slot.updates, slot.parameter == 3 ? 0 : counts ? 2 : 1);
  }
}

INSTANTIATE_TEST_SUITE_P(OfEveryPeer, OptimizerGolden,
                         ::testing::Values("adamw", "adamw_8bit", "adafactor", "sgd"),
                         [](const auto& test) { return test.param; });

TEST(OptimizerGolden, OfBitsandbytesIsConvertedTo32Bits) {
  SmallOptimizer exact(options_of("adamw"));
  (void)load_golden("adamw", exact);
  SmallOptimizer converted(options_of("adamw"));
  EXPECT_THAT(load_golden("adamw_8bit", converted).lines,
              ElementsAre("optimizer states: adamw_8bit -> adamw (32 bits), converted"));
  for (size_t i = 0; i < exact.optimizer->slots().size(); ++i) {
    const Optimizer::Slot& expected = exact.optimizer->slots()[i];
    const Optimizer::Slot& found = converted.optimizer->slots()[i];
    EXPECT_EQ(found.updates, expected.updates);
    if (expected.updates == 0) continue;
    for (size_t s = 0; s < 2; ++s) {
      const Tensor& wanted = expected.state[s].second;
      EXPECT_TRUE(at::allclose(found.state[s].second, wanted, 0.05,
                               0.02 * wanted.abs().max().item<double>()))
          << i << expected.state[s].first;
    }
  }
}

TEST(ScalerGolden, IsReadAndWrittenAsItWas) {
  const TorchValue golden = read_torch_file(FileSystem::local(), kData + "scaler.pt");
  LossScaler scaler;
  scaler_from_torch(scaler, golden, "scaler.pt");
  EXPECT_EQ(scaler.scale(), 32768.0);
  EXPECT_EQ(scaler.growth_tracker(), 3);
  const TorchValue ours = scaler_to_torch(scaler);
  ASSERT_EQ(ours.as_dict().items.size(), golden.as_dict().items.size());
  for (const auto& [key, value] : golden.as_dict().items) {
    EXPECT_EQ(ours.at(key).variant().index(), value.variant().index());
    EXPECT_EQ(ours.at(key).as_double(), value.as_double());
  }
}

}  // namespace
}  // namespace finetune
