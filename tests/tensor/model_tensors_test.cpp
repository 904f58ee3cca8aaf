// SPDX-License-Identifier: MIT
#include "finetune/tensor/model_tensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/memory_status.h"
#include "finetune/tensor/safetensors.h"
#include "finetune/tensor/torch_file.h"
#include "finetune/tensor/weight_files.h"
#include "support/golden.h"
#include "support/memory_file.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::MemoryWriter;
using testing::message_of;
using testing::TemporaryFolder;

std::string golden_bytes(const std::string& name) {
  return FileSystem::local().read_all(source_dir() + "/tests/fixtures/tensor/" + name);
}

ModelTensors load(const TemporaryFolder& folder) {
  return load_model_tensors(FileSystem::local(), folder.path());
}

Tensor values(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kFloat).reshape(shape);
}

template <class Tensors = NamedTensors>
std::string bytes_of(const Tensors& tensors) {
  MemoryWriter writer;
  write_safetensors(writer, tensors);
  return writer.content();
}

std::string pickled(const TorchValue& value) {
  MemoryWriter writer;
  write_torch_file(writer, value);
  return writer.content();
}

TEST(ModelShards, SplitLargeModelsAndReadBackAsOne) {
  const TemporaryFolder folder;
  const NamedTensors model = {{"c", values({4})}, {"a", values({6})}, {"b", values({2, 5})}};
  const std::vector<ModelShard> shards = plan_shards(model, 40);
  ASSERT_EQ(shards.size(), 2U);
  EXPECT_EQ(shards[0].file_name, "model-00001-of-00002.safetensors");
  for (const ModelShard& shard : shards) folder.write(shard.file_name, bytes_of(shard.tensors));
  folder.write(kModelIndexFile, make_shard_index(shards).value());

  const ModelTensors read = load(folder);
  EXPECT_EQ(read.tensors().size(), 3U);
  for (const NamedTensor& named : model) {
    EXPECT_TRUE(at::equal(read.read(named.name), named.tensor)) << named.name;
  }
  EXPECT_THAT(read.path_of("b"), HasSubstr("model-00002-of-00002"));
  EXPECT_FALSE(read.has("d"));
  EXPECT_THROW((void)read.info("d"), Error);
}

TEST(ModelShards, RefuseAnIndexThatShardsContradict) {
  const TemporaryFolder folder;
  const std::vector<ModelShard> shards = plan_shards({{"a", values({4})}, {"b", values({4})}}, 16);
  folder.write(shards[0].file_name, bytes_of(shards[0].tensors));
  folder.write(kModelIndexFile, make_shard_index(shards).value());
  EXPECT_THROW((void)load(folder), Error);
  folder.write(shards[1].file_name, bytes_of({{"x", values({4})}}));
  EXPECT_THAT(message_of<Error>([&] { (void)load(folder); }), HasSubstr("tensor 'b'"));
  folder.write(shards[1].file_name, bytes_of({{"a", values({4})}, {"b", values({4})}}));
  EXPECT_GOLDEN(message_of<Error>([&] { (void)load(folder); }));
}

TEST(ModelTensors, OfPickledFilesEqualThoseOfSafetensors) {
  const TemporaryFolder plain;
  plain.write("model.safetensors", golden_bytes("odd_model.safetensors"));
  const ModelTensors expected = load(plain);
  for (const std::string name : {"odd_model.bin", "odd_model_legacy.bin"}) {
    const TemporaryFolder folder;
    folder.write("pytorch_model.bin", golden_bytes(name));
    const ModelTensors model = load(folder);
    EXPECT_EQ(model.tensors().size(), expected.tensors().size()) << name;
    for (const TensorInfo& info : expected.tensors()) {
      const Tensor tensor = model.read(info.name);
      EXPECT_TRUE(at::equal(tensor, expected.read(info.name))) << name << " " << info.name;
      EXPECT_EQ(model.info(info.name).dtype, info.dtype) << name << " " << info.name;
      EXPECT_EQ(model.info(info.name).shape, info.shape) << name << " " << info.name;
      EXPECT_EQ(model.info(info.name).bytes, info.bytes) << name << " " << info.name;
      EXPECT_TRUE(tensor.is_contiguous()) << name << " " << info.name;
      EXPECT_EQ(tensor.storage().nbytes(), info.bytes) << name << " " << info.name;
    }
  }
}

TEST(ModelTensors, OfPickledFilesConvertFloatingTypes) {
  const TemporaryFolder folder;
  folder.write("pytorch_model.bin", golden_bytes("odd_model.bin"));
  const ModelTensors model = load(folder);
  for (const std::string name : {"half", "brain"}) {
    Tensor target = at::zeros({3});
    model.read_into(name, target);
    EXPECT_TRUE(at::equal(target, values({3}).mul(0.5).sub(1))) << name;
  }
  Tensor target = at::zeros({3});
  EXPECT_THAT(message_of<Error>([&] { model.read_into("double", target); }), HasSubstr("[2]"));
  EXPECT_GOLDEN(message_of<Error>([&] { model.read_into("flags", target); }));
}

TEST(ModelTensors, AreReadFromPickledShards) {
  const TemporaryFolder folder;
  TorchDict first;
  first.set("a", values({2}));
  TorchDict second;
  second.set("b", values({3}));
  folder.write("pytorch_model-00001-of-00002.bin", pickled(first));
  folder.write("pytorch_model-00002-of-00002.bin", pickled(second));
  folder.write("pytorch_model.bin.index.json",
               R"({"metadata":{},"weight_map":{"a":"pytorch_model-00001-of-00002.bin",
                  "b":"pytorch_model-00002-of-00002.bin"}})");
  EXPECT_TRUE(at::equal(load(folder).read("b"), values({3})));
  second.set("a", values({2}));
  folder.write("pytorch_model-00002-of-00002.bin", pickled(second));
  EXPECT_GOLDEN(message_of<Error>([&] { (void)load(folder); }));
}

TEST(ModelTensors, AreRefusedWhereAPickledFileHoldsSomethingElse) {
  const auto refusal = [](const TorchValue& value) {
    const TemporaryFolder folder;
    folder.write("pytorch_model.bin", pickled(value));
    return message_of<Error>([&] { (void)load(folder); });
  };
  EXPECT_GOLDEN(refusal(TorchList{values({2})}));
  TorchDict dict;
  dict.set("a", values({2}));
  dict.set("note", "text");
  EXPECT_GOLDEN(refusal(dict));
  EXPECT_GOLDEN(refusal(TorchDict{{{int64_t{1}, values({2})}}}));
}

TEST(ModelTensors, SayWhereAPickledTensorIsDamaged) {
  const TemporaryFolder folder;
  TorchDict dict;
  dict.set("a", values({40}));
  std::string bytes = pickled(dict);
  const std::string data(reinterpret_cast<const char*>(values({40}).const_data_ptr()), 160);
  bytes[bytes.find(data) + 50] ^= 1;
  folder.write("pytorch_model.bin", bytes);
  const ModelTensors model = load(folder);
  EXPECT_THAT(message_of<Error>([&] { (void)model.read("a"); }), HasSubstr("checksum"));
}

// As transformers' conversion_mapping.py renames and splits them.
TEST(ModelTensors, HaveTheModelsNamesAndParts) {
  const StoredNames names = {
      {"^new.", {""}}, {"attn.", {"self_attn."}}, {"qkv", {"query", "key", "value"}}};
  const Tensor all = values({6, 2});
  const auto check = [&](const TemporaryFolder& folder) {
    const ModelTensors model = load_model_tensors(FileSystem::local(), folder.path(), false, names);
    EXPECT_EQ(model.tensors().size(), 4U);
    EXPECT_TRUE(model.has("other.new.bias")) << "not at the begin";
    const Tensor key = model.read("self_attn.key.weight");
    EXPECT_TRUE(at::equal(key, all.narrow(0, 2, 2)));
    EXPECT_EQ(model.info("self_attn.key.weight").shape, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(model.info("self_attn.key.weight").bytes, 16U);
    const Tensor last = model.read_rows("self_attn.value.weight", 1, 1);
    EXPECT_TRUE(at::equal(last, all.narrow(0, 5, 1)));
    Tensor target = at::zeros({2, 2}).to(at::kDouble);
    model.read_into("self_attn.query.weight", target);
    EXPECT_TRUE(at::equal(target, all.narrow(0, 0, 2).to(at::kDouble)));
    Tensor wide = at::zeros({6, 2});
    EXPECT_THROW(model.read_into("self_attn.query.weight", wide), Error);
  };
  const TemporaryFolder plain;
  plain.write(kModelFile,
              bytes_of({{"new.attn.qkv.weight", all}, {"other.new.bias", values({3})}}));
  check(plain);
  const TemporaryFolder folder;
  TorchDict dict;
  dict.set("new.attn.qkv.weight", all);
  dict.set("other.new.bias", values({3}));
  folder.write("pytorch_model.bin", pickled(dict));
  check(folder);
}

TEST(ModelTensors, PreferAnExactNameToOneThatIsRenamed) {
  const TemporaryFolder folder;
  folder.write(kModelFile, bytes_of({{"new.a", values({2})}, {"a", values({3})}}));
  const ModelTensors model =
      load_model_tensors(FileSystem::local(), folder.path(), false, {{"^new.", {""}}});
  EXPECT_TRUE(at::equal(model.read("a"), values({3})));
}

TEST(ModelTensors, RefuseRowsThatAreNoEqualParts) {
  const StoredNames names = {{"qkv", {"query", "key", "value"}}};
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4, 2}, {}}) {
    const TemporaryFolder folder;
    folder.write(kModelFile, bytes_of({{"qkv.weight", at::zeros(shape)}}));
    EXPECT_THAT(message_of<Error>([&] {
                  (void)load_model_tensors(FileSystem::local(), folder.path(), false, names);
                }),
                HasSubstr("qkv.weight"));
  }
}

TEST(ModelTensors, AreCheckedAgainstAnIndexByTheirStoredNames) {
  const TemporaryFolder folder;
  const std::vector<ModelShard> shards =
      plan_shards({{"qkv", values({3})}, {"b", values({4})}}, 16);
  for (const ModelShard& shard : shards) folder.write(shard.file_name, bytes_of(shard.tensors));
  folder.write(kModelIndexFile, make_shard_index(shards).value());
  const ModelTensors model = load_model_tensors(FileSystem::local(), folder.path(), false,
                                                {{"qkv", {"query", "key", "value"}}});
  EXPECT_TRUE(at::equal(model.read("value"), at::full({1}, 2.0)));
}

class MappedModel : public ::testing::Test {
 protected:
  MappedModel() { folder_.write(kModelFile, bytes_of(model_)); }
  [[nodiscard]] ModelTensors load(bool maps) const {
    return load_model_tensors(FileSystem::local(), folder_.path(), maps);
  }
  // Whether a second reading has the same memory.
  static bool is_mapped(const ModelTensors& tensors, const std::string& name) {
    const Tensor one = tensors.read(name);
    return one.const_data_ptr() == tensors.read(name).const_data_ptr();
  }

  const TemporaryFolder folder_;
  // In files wider types come first, so that each address is a multiple of its size.
  const NamedTensors model_ = {{"floats", values({1024, 4096})},
                               {"halves", values({1024, 4096}).to(at::kBFloat16)},
                               {"odd", values({7}).to(at::kByte)},
                               {"true", values({3}).to(at::kBool)}};
};

TEST_F(MappedModel, HasTheValuesOfOneThatIsRead) {
  const ModelTensors mapped = load(true);
  for (const NamedTensor& named : model_) {
    EXPECT_TRUE(at::equal(mapped.read(named.name), named.tensor)) << named.name;
    EXPECT_EQ(mapped.read(named.name).scalar_type(), named.tensor.scalar_type());
  }
  const uint64_t position = mapped.info("floats").offset;
  EXPECT_EQ(is_mapped(mapped, "floats"), position % 64 == 0) << "else products have other bits";
  EXPECT_TRUE(is_mapped(mapped, "halves"));
  EXPECT_TRUE(is_mapped(mapped, "odd"));
  EXPECT_FALSE(is_mapped(load(false), "halves"));
}

TEST_F(MappedModel, OutlivesItsFileAndItsReader) {
  const Tensor halves = load(true).read("halves");
  FileSystem::local().remove_tree(folder_.path() + "/" + kModelFile);
  EXPECT_TRUE(at::equal(halves, model_[1].tensor));
}

TEST_F(MappedModel, IsReadFromRemoteFolders) {
  ::setenv("FINETUNE_TEST_MOUNT", (folder_.path() + "=fuse.drive").c_str(), 1);
  EXPECT_FALSE(is_mapped(load(true), "halves"));
  ::unsetenv("FINETUNE_TEST_MOUNT");
}

// As the same bytes would that were read.
TEST_F(MappedModel, CountsAsMemoryOfTheProcess) {
  const int64_t before = reclaimable_resident_memory();
  const Tensor halves = load(true).read("halves");
  EXPECT_GT(halves.to(at::kFloat).sum().item<float>(), 0.0F);
  EXPECT_LE(reclaimable_resident_memory(), before);
}

}  // namespace
}  // namespace finetune
