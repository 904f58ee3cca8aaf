// SPDX-License-Identifier: MIT
// The memory of saving and restoring, in addition to weights and states.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/file_system.h"
#include "finetune/state/optimizer_files.h"
#include "finetune/state/parameter_files.h"
#include "state/small_optimizer.h"
#include "support/tensor_memory.h"

namespace finetune {
namespace {

using testing::options_of;
using testing::TemporaryFolder;
using testing::TensorMemory;

constexpr int64_t kLayers = 4;
constexpr int64_t kRows = 2304;
constexpr int64_t kColumns = 1024;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kFloatBytes = kRows * kColumns * 4;  // of one layer: 9 MiB

struct LargeOptimizer {
  ParameterStore store;
  std::unique_ptr<Optimizer> optimizer;

  LargeOptimizer(const std::string& kind, WeightFormat format)
      : store(parameters(), format, GradientFormat::kFloat32),
        optimizer(make_optimizer(store, std::vector<bool>(kLayers, true), options_of(kind))) {}

  // Fills the states as after an update, without gradients.
  void fill() {
    for (Optimizer::Slot& slot : optimizer->slots()) {
      optimizer->create_state(slot);
      slot.updates = 1;
    }
  }

  static NamedTensors parameters() {
    NamedTensors tensors;
    for (int64_t i = 0; i < kLayers; ++i) {
      tensors.push_back({"w" + std::to_string(i), at::zeros({kRows, kColumns})});
    }
    return tensors;
  }
};

int64_t peak_of_saving(const LargeOptimizer& from, const LazyTensors& weights,
                       const std::string& folder) {
  FileSystem& files = FileSystem::local();
  const TensorMemory memory;
  const auto model = files.create(join_path(folder, "model.safetensors"));
  write_safetensors(*model, weights);
  model->close();
  for (const auto& contents : optimizer_checkpoint_files(*from.optimizer, {})) {
    const auto file = files.create(join_path(folder, contents.name));
    contents.write(*file);
    file->close();
  }
  return memory.peak_bytes();
}

class OptimizerMemory : public ::testing::TestWithParam<std::string> {};

TEST_P(OptimizerMemory, OfASaveIsThatOfNoTensor) {
  const TemporaryFolder folder;
  LargeOptimizer split(GetParam(), WeightFormat::kSplit);
  split.fill();
  EXPECT_LT(peak_of_saving(split, checkpoint_tensors(split.store), folder.path()), kMiB / 4);
  // Joining allocates 8 MiB of float32 at a time.
  EXPECT_LT(peak_of_saving(split, exported_tensors(split.store), folder.path()), 17 * kMiB);
  LargeOptimizer plain(GetParam(), WeightFormat::kFloat32);
  plain.fill();
  EXPECT_LT(peak_of_saving(plain, checkpoint_tensors(plain.store), folder.path()), kMiB / 4);
}

TEST_P(OptimizerMemory, OfARestoreIsThatOfTheStatesAlone) {
  const TemporaryFolder folder;
  LargeOptimizer saved(GetParam(), WeightFormat::kSplit);
  saved.fill();
  (void)peak_of_saving(saved, checkpoint_tensors(saved.store), folder.path());
  LargeOptimizer resumed(GetParam(), WeightFormat::kSplit);
  const TensorMemory memory;
  (void)restore_parameters(resumed.store, FileSystem::local(), folder.path());
  (void)restore_optimizer(*resumed.optimizer, FileSystem::local(), folder.path());
  const auto states = static_cast<int64_t>(optimizer_file_bytes(*resumed.optimizer)) -
                      kLayers * kRows * kColumns;  // the corrections already exist
  EXPECT_LT(memory.peak_bytes(), states + kMiB);
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, OptimizerMemory, ::testing::ValuesIn(optimizer_kinds()),
                         [](const auto& test) { return test.param; });

TEST(OptimizerMemory, OfAConversionIsThatOfOneTensorBesideTheStates) {
  const TemporaryFolder folder;
  LargeOptimizer saved("adamw", WeightFormat::kFloat32);
  saved.fill();
  (void)peak_of_saving(saved, checkpoint_tensors(saved.store), folder.path());
  LargeOptimizer resumed("adamw_companded_8bit", WeightFormat::kSplit);
  const TensorMemory memory;
  (void)restore_parameters(resumed.store, FileSystem::local(), folder.path());
  (void)restore_optimizer(*resumed.optimizer, FileSystem::local(), folder.path());
  const auto states = static_cast<int64_t>(optimizer_file_bytes(*resumed.optimizer));
  // The file's moments and the converted ones, with a temporary of the conversion.
  EXPECT_LT(memory.peak_bytes(), states + 8 * kFloatBytes);
}

}  // namespace
}  // namespace finetune
