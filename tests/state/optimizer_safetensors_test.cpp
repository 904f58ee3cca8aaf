// SPDX-License-Identifier: MIT
#include "state/optimizer_safetensors.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/state/optimizer_files.h"
#include "state/small_optimizer.h"
#include "support/golden.h"
#include "support/memory_file.h"

namespace finetune {
namespace {

using testing::MemoryWriter;
using testing::message_of;
using testing::options_of;
using testing::SmallOptimizer;
using testing::TemporaryFolder;

constexpr char kCompanded[] = "adamw_companded_8bit";

struct Contents {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;
};

std::string bytes_of(const SmallOptimizer& optimizer) {
  MemoryWriter writer;
  const OptimizerTensors content = optimizer_to_safetensors(*optimizer.optimizer);
  write_safetensors(writer, content.tensors, content.metadata);
  return writer.content();
}

Contents contents(WeightFormat format = WeightFormat::kSplit) {
  SmallOptimizer optimizer(options_of(kCompanded), format);
  optimizer.update(0, 2);
  const TemporaryFolder folder;
  const SafetensorsFile file = open_optimizer_tensors(
      FileSystem::local(), folder.write("x.safetensors", bytes_of(optimizer)));
  Contents result{.tensors = {}, .metadata = file.metadata()};
  for (const TensorInfo& info : file.tensors()) {
    result.tensors.push_back({info.name, file.read(info.name)});
  }
  return result;
}

// Replaces a tensor; an undefined one removes it.
Contents with(Contents from, const std::string& name, const Tensor& tensor) {
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    if (from.tensors[i].name != name) continue;
    from.tensors.erase(from.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  if (tensor.defined()) from.tensors.push_back({name, tensor});
  return from;
}

void load(const std::string& bytes) {
  const TemporaryFolder folder;
  folder.write("optimizer.safetensors", bytes);
  SmallOptimizer optimizer(options_of(kCompanded), WeightFormat::kSplit);
  (void)restore_optimizer(*optimizer.optimizer, FileSystem::local(), folder.path());
}

std::string refusal(const Contents& damaged) {
  MemoryWriter writer;
  write_safetensors(writer, damaged.tensors, damaged.metadata, Numbers::kAny);
  const std::string message = message_of<Error>([&] { load(writer.content()); });
  EXPECT_GOLDEN(message);
  return message;
}

TEST(OptimizerSafetensors, HoldStatesAndCorrectionsByName) {
  const Contents file = contents();
  EXPECT_EQ(file.metadata.at("optimizer"), kCompanded);
  EXPECT_EQ(file.metadata.at("format_version"), "1");
  std::map<std::string, at::ScalarType> types;
  for (const NamedTensor& named : file.tensors) types[named.name] = named.tensor.scalar_type();
  EXPECT_EQ(types.size(), 3U * 5U + 4U);  // the pooler has only a correction
  EXPECT_EQ(types.at("layer.w.exp_avg_q"), at::kChar);
  EXPECT_EQ(types.at("layer.w.exp_avg_scale"), at::kFloat);
  EXPECT_EQ(types.at("layer.w.exp_avg_sq_q"), at::kByte);
  EXPECT_EQ(types.at("layer.w.exp_avg_sq_scale"), at::kFloat);
  EXPECT_EQ(types.at("layer.w.step"), at::kLong);
  EXPECT_EQ(types.at("pooler.w.correction"), at::kChar);
}

TEST(OptimizerSafetensors, HoldCorrectionsAloneBesideAnOptimizerPt) {
  SmallOptimizer optimizer(options_of("adamw"), WeightFormat::kSplit);
  optimizer.update(0, 1);
  const TemporaryFolder folder;
  const SafetensorsFile file = open_optimizer_tensors(
      FileSystem::local(), folder.write("x.safetensors", bytes_of(optimizer)));
  EXPECT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.metadata().count("optimizer"), 0U);
}

TEST(OptimizerSafetensors, RefuseOtherShapesTypesAndNames) {
  const Contents good = contents();
  EXPECT_GOLDEN(refusal(with(good, "layer.w.exp_avg_scale", at::zeros({3}))));
  EXPECT_GOLDEN(refusal(with(good, "layer.w.exp_avg_q", at::zeros({64, 70}))));
  EXPECT_GOLDEN(refusal(with(good, "layer.w.exp_avg_sq_q", at::zeros({64, 70}, at::kChar))));
  EXPECT_GOLDEN(refusal(with(good, "layer.w.exp_avg_q", {})));
  EXPECT_GOLDEN(refusal(with(good, "other.w.exp_avg_q", at::zeros({2}, at::kChar))));
  EXPECT_GOLDEN(refusal(with(good, "layer.w.step", at::zeros({2}, at::kLong))));
  EXPECT_GOLDEN(refusal(with(good, "layer.w.step", at::full({}, -1, at::kLong))));
}

TEST(OptimizerSafetensors, RefuseValuesThatNoOptimizerWrites) {
  const Contents good = contents();
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0F}) {
    for (const std::string state : {"exp_avg_scale", "exp_avg_sq_scale"}) {
      EXPECT_GOLDEN(refusal(with(good, "layer.w." + state, at::full({35}, bad))));
    }
  }
  EXPECT_GOLDEN(refusal(with(good, "layer.w.exp_avg_q", at::full({64, 70}, -128, at::kChar))));
}

TEST(OptimizerSafetensors, RefuseOtherVersionsAndKinds) {
  Contents file = contents();
  file.metadata["format_version"] = "2";
  EXPECT_GOLDEN(refusal(file));
  file.metadata.erase("format_version");
  EXPECT_GOLDEN(refusal(file));
  file = contents();
  file.metadata["optimizer"] = "lion";
  EXPECT_GOLDEN(refusal(file));
}

TEST(OptimizerSafetensors, RefuseAFileThatIsCutAnywhere) {
  SmallOptimizer optimizer(options_of(kCompanded), WeightFormat::kSplit);
  const std::string good = bytes_of(optimizer.update(0, 2));
  for (size_t size = 0; size < good.size(); size += 97) {
    EXPECT_THROW(load(good.substr(0, size)), Error) << size;
  }
}

}  // namespace
}  // namespace finetune
