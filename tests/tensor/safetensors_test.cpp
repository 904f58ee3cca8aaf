// SPDX-License-Identifier: MIT
#include "finetune/tensor/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"
#include "support/memory_file.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::MemoryWriter;
using testing::message_of;
using testing::TemporaryFolder;

const std::string kGolden = source_dir() + "/tests/fixtures/tensor/all_types.safetensors";

// Returns the values that make_goldens.py writes.
Tensor golden_values(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).mul(0.5).sub(1).reshape(shape).to(type);
}

std::string bytes_of(const NamedTensors& tensors) {
  MemoryWriter writer;
  write_safetensors(writer, tensors);
  return writer.content();
}

TEST(Safetensors, ReadsWhatTheReferenceWroteAndWritesTheSameBytes) {
  const SafetensorsFile golden = SafetensorsFile::open(FileSystem::local(), kGolden);
  EXPECT_EQ(golden.metadata().at("format"), "pt");
  EXPECT_EQ(golden.tensors().size(), 13U);
  EXPECT_TRUE(at::equal(golden.read("b.weight"), golden_values({2, 3})));
  EXPECT_TRUE(at::equal(golden.read("half"), golden_values({3}, at::kHalf)));
  EXPECT_TRUE(at::equal(golden.read("brain"), golden_values({3}, at::kBFloat16)));
  EXPECT_EQ(golden.read("long")[1].item<int64_t>(), int64_t{1} << 40);
  EXPECT_EQ(golden.read("short")[0].item<int64_t>(), -300);
  EXPECT_TRUE(golden.read("bool")[2].item<bool>());
  EXPECT_EQ(golden.read("scalar").dim(), 0);
  EXPECT_EQ(golden.read("empty").sizes(), at::IntArrayRef({0, 4}));

  NamedTensors tensors;
  for (const TensorInfo& info : golden.tensors()) {
    tensors.insert(tensors.begin(), {info.name, golden.read(info.name)});
  }
  EXPECT_EQ(bytes_of(tensors), FileSystem::local().read_all(kGolden));
}

TEST(Safetensors, WritesTheLogicalContentOfViews) {
  const TemporaryFolder folder;
  const Tensor matrix = golden_values({2, 3});
  const std::string path =
      folder.write("x.safetensors", bytes_of({{"t", matrix.t()}, {"row", matrix[1]}}));
  const SafetensorsFile file = SafetensorsFile::open(FileSystem::local(), path);
  EXPECT_TRUE(at::equal(file.read("t"), matrix.t()));
  EXPECT_TRUE(at::equal(file.read("row"), matrix[1]));
}

TEST(Safetensors, ReadsIntoExistingTensorsAndConvertsFloatingTypes) {
  const SafetensorsFile golden = SafetensorsFile::open(FileSystem::local(), kGolden);
  Tensor same = at::zeros({2, 3}).set_requires_grad(true);
  golden.read_into("b.weight", same);
  EXPECT_TRUE(at::equal(same, golden_values({2, 3})));
  Tensor wider = at::zeros({3});
  golden.read_into("half", wider);
  EXPECT_TRUE(at::equal(wider, golden_values({3})));
  Tensor transposed = at::zeros({3, 2}).t();
  golden.read_into("b.weight", transposed);
  EXPECT_TRUE(at::equal(transposed, golden_values({2, 3})));
}

TEST(Safetensors, SaysWhichTensorDoesNotFit) {
  const SafetensorsFile golden = SafetensorsFile::open(FileSystem::local(), kGolden);
  Tensor target = at::zeros({4});
  const std::string shape = message_of<Error>([&] { golden.read_into("b.weight", target); });
  EXPECT_THAT(shape, HasSubstr("all_types.safetensors': tensor 'b.weight'"));
  EXPECT_THAT(shape, HasSubstr("[2, 3]"));
  EXPECT_THAT(shape, HasSubstr("[4]"));
  Tensor integers = at::zeros({3}, at::kLong);
  EXPECT_THAT(message_of<Error>([&] { golden.read_into("half", integers); }), HasSubstr("F16"));
  EXPECT_GOLDEN(message_of<Error>([&] { (void)golden.read("c"); }));
}

TEST(Safetensors, RefusesBooleansThatAreNone) {
  const TemporaryFolder folder;
  std::string bytes = bytes_of({{"flags", at::zeros({3}, at::kBool)}});
  bytes.back() = 2;
  const SafetensorsFile file =
      SafetensorsFile::open(FileSystem::local(), folder.write("x.safetensors", bytes));
  EXPECT_THAT(message_of<Error>([&] { (void)file.read("flags"); }), HasSubstr("boolean"));
}

TEST(Safetensors, AsksForTheRowsOfALazyTensorOneMiBAtATime) {
  constexpr int64_t kRows = 600;
  constexpr int64_t kColumns = 1024;  // 4 KiB per row
  std::vector<std::pair<int64_t, int64_t>> asked;
  LazyTensors tensors =
      lazy_tensors({{"scalar", golden_values({})}, {"none", golden_values({3, 0})}});
  tensors.push_back(
      {.name = "large",
       .type = at::kFloat,
       .shape = {kRows, kColumns},
       .rows = [&](int64_t first, int64_t count) {
         asked.emplace_back(first, count);
         return at::arange(first, first + count, at::kFloat).unsqueeze(1).expand({count, kColumns});
       }});
  MemoryWriter writer;
  write_safetensors(writer, tensors);
  EXPECT_EQ(asked,
            (std::vector<std::pair<int64_t, int64_t>>{{0, 256}, {256, 256}, {512, kRows - 512}}));

  const TemporaryFolder folder;
  const SafetensorsFile file =
      SafetensorsFile::open(FileSystem::local(), folder.write("x.safetensors", writer.content()));
  const Tensor expected = at::arange(kRows, at::kFloat).unsqueeze(1).expand({kRows, kColumns});
  EXPECT_TRUE(at::equal(file.read("large"), expected));
  EXPECT_TRUE(at::equal(file.read("scalar"), golden_values({})));
  EXPECT_EQ(file.read("none").sizes(), at::IntArrayRef({3, 0}));
}

TEST(Safetensors, RefusesRowsOfAnotherTypeThanWasSaid) {
  MemoryWriter writer;
  const LazyTensors tensors = {
      {.name = "x", .type = at::kBFloat16, .shape = {2}, .rows = [](int64_t, int64_t count) {
         return at::zeros({count}, at::kFloat);
       }}};
  EXPECT_THROW(write_safetensors(writer, tensors), std::logic_error);
}

TEST(ModelShards, KeepSmallModelsInOneFile) {
  const std::vector<ModelShard> shards =
      plan_shards({{"a", golden_values({4})}, {"b", golden_values({4})}});
  ASSERT_EQ(shards.size(), 1U);
  EXPECT_EQ(shards[0].file_name, "model.safetensors");
}

TEST(ModelShards, ArePlannedByTheTypeThatIsWritten) {
  LazyTensors tensors;
  for (const std::string name : {"a", "b", "c"}) {
    tensors.push_back({.name = name, .type = at::kBFloat16, .shape = {5, 2}, .rows = {}});
  }
  EXPECT_EQ(plan_shards(tensors, 60).size(), 1U);
  const std::vector<ModelShard> shards = plan_shards(tensors, 59);
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].tensors.size(), 2U);
  const std::string index = make_shard_index(shards).value();
  EXPECT_THAT(index, HasSubstr("\"total_size\": 60"));
  EXPECT_THAT(index, HasSubstr("\"total_parameters\": 30"));
}

}  // namespace
}  // namespace finetune
