// SPDX-License-Identifier: MIT
// Memory for building a model and loading its weights from a folder.
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "finetune/model/model_folder.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/weight_files.h"
#include "support/memory_file.h"
#include "support/tensor_memory.h"

namespace finetune {
namespace {

using ::testing::IsEmpty;
using testing::MemoryWriter;
using testing::TemporaryFolder;
using testing::TensorMemory;

constexpr int64_t kLoadedVocabulary = 3000;
constexpr int64_t kLoadedWidth = 64;
constexpr int64_t kLargestTensor = kLoadedVocabulary * kLoadedWidth * 4;  // bytes, in the folder
constexpr int64_t kSmallTensors = 4096;  // bytes: scalars that are not parameters

ModelConfig loaded_config() {
  ModelConfig config = default_model_config("bert");
  config.vocab_size = kLoadedVocabulary;
  config.hidden_size = kLoadedWidth;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 256;
  config.max_position_embeddings = 64;
  return config;
}

std::unique_ptr<Model> make_loaded(WeightFormat format, bool draws) {
  return make_model(std::nullopt, loaded_config(), 7, c10::Device(c10::kCPU),
                    {.fused = true, .weights = format, .draw_weights = draws});
}

// Saves in float32 in several files: the largest tensor fills one file.
void save_in_shards(const NamedTensors& tensors, const TemporaryFolder& folder) {
  const std::vector<ModelShard> shards = plan_shards(tensors, 300'000);
  ASSERT_GE(shards.size(), 3U);
  for (const ModelShard& shard : shards) {
    MemoryWriter file;
    write_safetensors(file, shard.tensors);
    folder.write(shard.file_name, file.content());
  }
  folder.write(kModelIndexFile, make_shard_index(shards).value());
}

int64_t model_bytes(const ParameterStore& store) {
  int64_t bytes = 0;
  for (const Parameter& parameter : store.parameters()) {
    bytes += static_cast<int64_t>(parameter.weight.nbytes());
    if (parameter.correction.defined())
      bytes += static_cast<int64_t>(parameter.correction.nbytes());
  }
  return bytes;
}

// Builds a model and loads the folder; returns the peak bytes in excess of the model.
int64_t memory_beyond_model(const std::string& folder, WeightFormat format) {
  const TensorMemory memory;
  const auto model = make_loaded(format, false);
  const LoadReport report = load_folder_weights(*model, folder);
  EXPECT_THAT(report.missing, IsEmpty());
  return memory.peak_bytes() - model_bytes(model->store());
}

class ModelLoading : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(ModelLoading, IsLoadedInTheMemoryOfTheModelAndOneTensor) {
  const TemporaryFolder folder;
  const auto saved = make_loaded(WeightFormat::kFloat32, true);
  save_in_shards(saved->parameters(), folder);
  const int64_t beyond = memory_beyond_model(folder.path(), GetParam());
  EXPECT_GE(beyond, kLargestTensor);  // otherwise nothing was counted
  EXPECT_LE(beyond, kLargestTensor + kSmallTensors);
}

TEST_P(ModelLoading, IsLoadedWithOneOfTwoTiedTensorsInMemoryAtATime) {
  const TemporaryFolder folder;
  const auto saved = make_loaded(WeightFormat::kFloat32, true);
  NamedTensors tensors = saved->parameters();
  const auto tied =
      std::ranges::find(tensors, "bert.embeddings.word_embeddings.weight", &NamedTensor::name);
  ASSERT_NE(tied, tensors.end());
  tensors.push_back({"cls.predictions.decoder.weight", tied->tensor});
  save_in_shards(tensors, folder);
  EXPECT_LE(memory_beyond_model(folder.path(), GetParam()), kLargestTensor + kSmallTensors);
}

INSTANTIATE_TEST_SUITE_P(Formats, ModelLoading,
                         ::testing::Values(WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                           WeightFormat::kSplit));

TEST(ModelInMemory, IsAllocatedOnceInItsFormat) {
  for (const WeightFormat format :
       {WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kSplit}) {
    const TensorMemory memory;
    const auto model = make_loaded(format, false);
    EXPECT_LE(memory.peak_bytes(), model_bytes(model->store()) + kSmallTensors);
    EXPECT_TRUE(std::ranges::all_of(model->parameters(), [](const NamedTensor& parameter) {
      return parameter.tensor.is_cpu() && parameter.tensor.requires_grad() &&
             parameter.tensor.is_leaf();
    }));
  }
}

TEST(ModelInMemory, HasTheSameValuesFromAFolderInEveryFormat) {
  const TemporaryFolder folder;
  const auto saved = make_loaded(WeightFormat::kFloat32, true);
  save_in_shards(saved->parameters(), folder);
  for (const WeightFormat format :
       {WeightFormat::kFloat32, WeightFormat::kBFloat16, WeightFormat::kSplit}) {
    const auto loaded = make_loaded(format, false);
    (void)load_folder_weights(*loaded, folder.path());
    const auto drawn = make_loaded(format, true);  // the same seed
    for (size_t i = 0; i < drawn->parameters().size(); ++i) {
      EXPECT_TRUE(loaded->store()
                      .values(loaded->weights()[i])
                      .equal(drawn->store().values(drawn->weights()[i])))
          << drawn->parameters()[i].name;
    }
  }
}

}  // namespace
}  // namespace finetune
