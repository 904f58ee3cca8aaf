// SPDX-License-Identifier: MIT
#include "finetune/state/parameter_files.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/state/optimizer_files.h"
#include "state/small_optimizer.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::MemoryWriter;
using testing::message_of;
using testing::options_of;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

constexpr WeightFormat kFormats[] = {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                     WeightFormat::kSplit};

void write(const TemporaryFolder& folder, const LazyTensors& tensors) {
  MemoryWriter writer;
  write_safetensors(writer, tensors, {{"format", "pt"}}, Numbers::kAny);
  folder.write("model.safetensors", writer.content());
}

void save_parameters(const SmallOptimizer& from, const TemporaryFolder& folder) {
  write(folder, checkpoint_tensors(from.store));
  for (const auto& file : optimizer_checkpoint_files(*from.optimizer, {})) {
    MemoryWriter writer;
    file.write(writer);
    folder.write(file.name, writer.content());
  }
}

SmallOptimizer& trained(SmallOptimizer& optimizer) { return optimizer.update(0, 3); }

TEST(ParameterFiles, HoldTheFormatOfTheWeights) {
  for (const WeightFormat format : kFormats) {
    const SmallOptimizer optimizer(options_of("adamw"), format);
    const auto kept = format == WeightFormat::kFloat32 ? at::kFloat : at::kBFloat16;
    const auto exported = format == WeightFormat::kBFloat16 ? at::kBFloat16 : at::kFloat;
    for (const LazyTensor& tensor : checkpoint_tensors(optimizer.store))
      EXPECT_EQ(tensor.type, kept);
    for (const LazyTensor& tensor : exported_tensors(optimizer.store))
      EXPECT_EQ(tensor.type, exported);
  }
}

TEST(ParameterFiles, AreReadIntoEveryFormatOfWeights) {
  for (const WeightFormat from : kFormats) {
    SmallOptimizer saved(options_of("adamw"), from);
    const TemporaryFolder folder;
    save_parameters(trained(saved), folder);
    for (const WeightFormat to : kFormats) {
      SmallOptimizer resumed(options_of("adamw"), to);
      const RestoredParameters result =
          restore_parameters(resumed.store, FileSystem::local(), folder.path());
      EXPECT_EQ(result.line.empty(), from == to);
      EXPECT_EQ(result.exact,
                from == to || to == WeightFormat::kFloat32 || from == WeightFormat::kBFloat16);
      for (size_t i = 0; i < resumed.store.parameters().size(); ++i) {
        const Tensor before = saved.store.values(saved.store.parameters()[i].handle);
        const Tensor after = resumed.store.values(resumed.store.parameters()[i].handle);
        if (result.exact) {
          EXPECT_TRUE(at::equal(before, after));
        } else {
          const double bits = to == WeightFormat::kSplit ? 16 : 8;
          const double worst =
              before.sub(after).abs().div(before.abs().add(1e-30)).max().item<double>();
          EXPECT_GT(worst, 0.0);
          EXPECT_LE(worst, std::exp2(-bits) * 128 / 127);  // a code step is 1/127
        }
      }
    }
  }
}

TEST(ParameterFiles, ExportSplitWeightsJoined) {
  SmallOptimizer optimizer(options_of("adamw"), WeightFormat::kSplit);
  trained(optimizer);
  const TemporaryFolder folder;
  write(folder, exported_tensors(optimizer.store));
  const SafetensorsFile file =
      SafetensorsFile::open(FileSystem::local(), join_path(folder.path(), "model.safetensors"));
  for (const Parameter& parameter : optimizer.store.parameters()) {
    EXPECT_TRUE(at::equal(file.read(parameter.name()), optimizer.store.values(parameter.handle)));
  }
}

TEST(ParameterFiles, AreRefusedWhereCorrectionsDoNotFit) {
  SmallOptimizer saved(options_of("adamw"), WeightFormat::kSplit);
  const TemporaryFolder folder;
  save_parameters(trained(saved), folder);
  const auto refusal = [&](const std::function<void(NamedTensors&)>& damage) {
    NamedTensors corrections;
    for (const Parameter& parameter : saved.store.parameters()) {
      corrections.push_back({parameter.name() + ".correction", parameter.correction});
    }
    damage(corrections);
    MemoryWriter writer;
    write_safetensors(writer, corrections, {{"format_version", "1"}});
    folder.write("optimizer.safetensors", writer.content());
    SmallOptimizer resumed(options_of("adamw"), WeightFormat::kSplit);
    const std::string message = message_of<Error>(
        [&] { (void)restore_parameters(resumed.store, FileSystem::local(), folder.path()); });
    EXPECT_GOLDEN(message);
    return message;
  };
  EXPECT_GOLDEN(refusal([](NamedTensors& list) { list.erase(list.begin()); }));
  EXPECT_GOLDEN(refusal([](NamedTensors& list) { list[0].tensor = at::zeros({2}, at::kChar); }));
  EXPECT_GOLDEN(refusal([](NamedTensors& list) { list[0].tensor = list[0].tensor.to(at::kByte); }));
  EXPECT_THAT(refusal([](NamedTensors& list) { list[1].tensor = at::full({70}, -128, at::kChar); }),
              HasSubstr("holds -128"));
}

TEST(ParameterFiles, AreRefusedWhereTheModelDoesNotFit) {
  SmallOptimizer saved(options_of("adamw"), WeightFormat::kSplit);
  const TemporaryFolder folder;
  save_parameters(saved, folder);
  const auto refusal = [&](const NamedTensors& weights) {
    write(folder, lazy_tensors(weights));
    SmallOptimizer resumed(options_of("adamw"), WeightFormat::kSplit);
    return message_of<Error>(
        [&] { (void)restore_parameters(resumed.store, FileSystem::local(), folder.path()); });
  };
  NamedTensors weights = testing::small_parameters();
  EXPECT_GOLDEN(refusal(weights));
  weights[0].tensor = at::zeros({70, 64}, at::kBFloat16);
  EXPECT_GOLDEN(refusal(weights));
  weights.erase(weights.begin());
  EXPECT_GOLDEN(refusal(weights));
}

// Frozen parameters are saved with the weights but have no optimizer state.
TEST(ParameterFiles, KeepFrozenParametersButNoStateOfThem) {
  for (const char* kind : {"adamw", "adamw_companded_8bit"}) {
    for (const WeightFormat format : kFormats) {
      SmallOptimizer saved(options_of(kind), format, "layer.w");
      const Tensor before = saved.store.values(saved.store.parameters()[0].handle).clone();
      const TemporaryFolder folder;
      save_parameters(trained(saved), folder);
      EXPECT_EQ(saved.optimizer->slots().size(), 3U);
      for (const Optimizer::Slot& slot : saved.optimizer->slots()) EXPECT_NE(slot.parameter, 0U);
      EXPECT_TRUE(saved.store.values(saved.store.parameters()[0].handle).equal(before));

      SmallOptimizer resumed(options_of(kind), format, "layer.w");
      (void)restore_parameters(resumed.store, FileSystem::local(), folder.path());
      (void)restore_optimizer(*resumed.optimizer, FileSystem::local(), folder.path());
      testing::expect_same_weights(resumed.store, saved.store);
      testing::expect_same_states(*resumed.optimizer, *saved.optimizer);

      SmallOptimizer everything(options_of(kind), format);
      EXPECT_LT(optimizer_file_bytes(*saved.optimizer),
                optimizer_file_bytes(*everything.optimizer));
    }
  }
}

// A parameter that is kept in another folder is neither saved, exported nor restored.
TEST(ParameterFiles, LeaveOutParametersWithAnotherHome) {
  SmallOptimizer saved(options_of("adamw"), WeightFormat::kSplit, "layer.w");
  saved.store.parameters()[0].format.home = WeightHome::kBase;
  const TemporaryFolder folder;
  save_parameters(trained(saved), folder);
  const SafetensorsFile file =
      SafetensorsFile::open(FileSystem::local(), join_path(folder.path(), "model.safetensors"));
  EXPECT_FALSE(file.has("layer.w"));
  EXPECT_EQ(file.tensors().size(), saved.store.parameters().size() - 1);
  EXPECT_EQ(exported_tensors(saved.store).size(), file.tensors().size());

  SmallOptimizer resumed(options_of("adamw"), WeightFormat::kSplit, "layer.w");
  resumed.store.parameters()[0].format.home = WeightHome::kBase;
  (void)restore_parameters(resumed.store, FileSystem::local(), folder.path());
  testing::expect_same_weights(resumed.store, saved.store);
}

}  // namespace
}  // namespace finetune
