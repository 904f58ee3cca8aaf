// SPDX-License-Identifier: MIT
#include "finetune/tensor/torch_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/tensor/torch_archive.h"
#include "support/golden.h"
#include "support/memory_file.h"
#include "support/paths.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::MemoryFile;
using testing::MemoryWriter;
using testing::message_of;
using testing::TemporaryFolder;

std::string golden(const std::string& name) {
  return source_dir() + "/tests/fixtures/tensor/" + name;
}

TorchValue read(const std::string& path) { return read_torch_file(FileSystem::local(), path); }

std::string bytes_of(const TorchValue& value) {
  MemoryWriter writer;
  write_torch_file(writer, value);
  return writer.content();
}

TorchValue round_trip(const TorchValue& value) {
  const TemporaryFolder folder;
  return read(folder.write("x.pt", bytes_of(value)));
}

Tensor values(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).mul(0.5).sub(1).reshape(shape).to(type);
}

TEST(TorchFile, ReadsAnOptimizersStateFromPython) {
  const TorchValue optimizer = read(golden("optimizer.pt"));
  const TorchValue& state = optimizer.at("state").at(0);
  EXPECT_EQ(state.at("step").as_tensor().item<double>(), 1.0);
  // After one step with gradients of one, the moments are 1 - beta.
  EXPECT_TRUE(at::equal(state.at("exp_avg").as_tensor(), at::full({3, 2}, 0.1F)));
  EXPECT_EQ(state.at("exp_avg_sq").as_tensor().sizes(), at::IntArrayRef({3, 2}));
  const std::vector<TorchValue>& groups = optimizer.at("param_groups").as_sequence();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].at("betas").as_sequence()[1].as_double(), 0.999);
  EXPECT_EQ(groups[0].at("lr").as_double(), 0.0005);
  EXPECT_EQ(groups[1].at("weight_decay").as_double(), 0.0);
  EXPECT_FALSE(groups[1].at("amsgrad").as_bool());
  EXPECT_TRUE(groups[1].at("foreach").is_none());
  EXPECT_EQ(groups[1].at("params").as_sequence()[0].as_int(), 1);
}

TEST(TorchFile, ReadsASchedulersStateFromPython) {
  const TorchValue scheduler = read(golden("scheduler.pt"));
  EXPECT_EQ(scheduler.at("last_epoch").as_int(), 1);
  EXPECT_EQ(scheduler.at("_last_lr").as_sequence()[0].as_double(), 0.0005);
  EXPECT_TRUE(scheduler.at("lr_lambdas").as_sequence()[0].is_none());
}

TEST(TorchFile, ReadsAModelsStateWithAttributesFromPython) {
  const TorchValue model = read(golden("pytorch_model.bin"));
  EXPECT_EQ(model.as_dict().items.size(), 4U);
  EXPECT_TRUE(at::equal(model.at("0.weight").as_tensor(), values({2, 3})));
  EXPECT_TRUE(at::equal(model.at("1.bias").as_tensor(), values({2})));
}

TEST(TorchFile, ReadsTheFormatBeforeTorch16) {
  const TorchValue value = read(golden("legacy.pt"));
  ASSERT_EQ(value.as_sequence().size(), 2U);
  EXPECT_EQ(value.as_sequence()[1].as_int(), 2);
  const TorchValue model = read(golden("odd_model_legacy.bin"));
  EXPECT_EQ(model.at("epoch").as_int(), 3);
  EXPECT_TRUE(at::equal(model.at("state_dict").at("transposed").as_tensor(), values({2, 3}).t()));
}

TEST(TorchFile, RefusesACutOrDamagedFileOfTheOldFormat) {
  const std::string good = FileSystem::local().read_all(golden("odd_model_legacy.bin"));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(check_torch_file(MemoryFile(good.substr(0, size)), "x.pt"), Error) << size;
  }
  EXPECT_GOLDEN(message_of<Error>([&] { check_torch_file(MemoryFile(good + "x"), "x.pt"); }));
  // Before the data, only memo keys, locations and sizes of C types are unchecked.
  const size_t data = good.rfind("e.");
  for (size_t i = 0; i < data; ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x50);
    try {
      check_torch_file(MemoryFile(damaged), "x.pt");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << i;
    }
  }
  std::string other_version = good;
  other_version[other_version.find("M\xe9\x03") + 1] = '\xe8';
  EXPECT_GOLDEN(message_of<Error>([&] { check_torch_file(MemoryFile(other_version), "x.pt"); }));
}

TEST(TorchFile, ReadsTensorsOfAnOpenedFileWhenTheyAreAskedFor) {
  const TemporaryFolder folder;
  const Tensor shared = values({4, 3});
  TorchDict dict;
  dict.set("whole", shared);
  dict.set("other", values({2, 3}, at::kByte));
  const std::string path = folder.write("x.pt", bytes_of(dict));
  const TorchValue file = open_torch_file(FileSystem::local(), path);
  const StoredTensor& whole = file.at("whole").as_stored_tensor();
  EXPECT_EQ(whole.sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(file.at("other").as_stored_tensor().scalar_type(), at::kByte);
  EXPECT_THROW((void)file.at("whole").as_tensor(), Error);

  EXPECT_TRUE(at::equal(whole.read(), shared));
  Tensor same = at::zeros({4, 3});
  const void* memory = same.const_data_ptr();
  whole.read_into(same);
  EXPECT_TRUE(at::equal(same, shared));
  EXPECT_EQ(same.const_data_ptr(), memory);
  Tensor double_and_transposed = at::zeros({3, 4}, at::kDouble).t();
  whole.read_into(double_and_transposed);
  EXPECT_TRUE(at::equal(double_and_transposed, shared.to(at::kDouble)));
}

TEST(TorchFile, ReadsViewsOfAnOpenedFileAsTheyAre) {
  const TorchValue model = open_torch_file(FileSystem::local(), golden("odd_model_legacy.bin"));
  const StoredTensor& transposed = model.at("state_dict").at("transposed").as_stored_tensor();
  EXPECT_TRUE(at::equal(transposed.read(), values({2, 3}).t()));
  Tensor target = at::zeros({3, 2});
  transposed.read_into(target);
  EXPECT_TRUE(at::equal(target, values({2, 3}).t()));
}

TEST(TorchFile, FindsDamageOfAnOpenedFileWhereItIsRead) {
  const TemporaryFolder folder;
  TorchDict dict;
  dict.set("a", at::full({64}, 1.5F));
  dict.set("b", at::full({64}, 2.5F));
  std::string bytes = bytes_of(dict);
  const float second = 2.5F;
  bytes[bytes.find(std::string(reinterpret_cast<const char*>(&second), 4)) + 2] ^= 1;
  const TorchValue file = open_torch_file(FileSystem::local(), folder.write("x.pt", bytes));
  EXPECT_TRUE(at::equal(file.at("a").as_stored_tensor().read(), at::full({64}, 1.5F)));
  Tensor target = at::zeros({64});
  EXPECT_THAT(message_of<Error>([&] { file.at("b").as_stored_tensor().read_into(target); }),
              HasSubstr("checksum"));
}

TEST(TorchFile, ReturnsEveryKindOfValueAsItWasWritten) {
  TorchDict inner;
  inner.set("none", {});
  inner.set(int64_t{-5}, TorchTuple{{1, 2.5, "ü"}});
  inner.set(int64_t{300}, TorchTuple{});
  TorchDict dict;
  dict.set("list", TorchList{true, false, -1, 255, 256, 70000});
  dict.set("large", std::numeric_limits<int64_t>::min());
  dict.set("larger", std::numeric_limits<int64_t>::max());
  dict.set("inner", inner);
  dict.set("tensor", values({2, 3}).t());
  dict.set("scalar", values({}, at::kDouble));
  dict.set("empty", at::zeros({0, 5}, at::kBFloat16));
  dict.set("flags", at::zeros({3}, at::kBool));
  dict.set("nothing", TorchList{});
  dict.set("no keys", TorchDict{});

  const TorchValue read_back = round_trip(dict);
  const std::vector<TorchValue>& list = read_back.at("list").as_sequence();
  EXPECT_TRUE(list[0].as_bool());
  EXPECT_FALSE(list[1].as_bool());
  EXPECT_EQ(list[2].as_int(), -1);
  EXPECT_EQ(list[3].as_int(), 255);
  EXPECT_EQ(list[4].as_int(), 256);
  EXPECT_EQ(list[5].as_int(), 70000);
  EXPECT_EQ(read_back.at("large").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(read_back.at("larger").as_int(), std::numeric_limits<int64_t>::max());
  const TorchValue& tuple = read_back.at("inner").at(int64_t{-5});
  EXPECT_EQ(tuple.as_sequence()[1].as_double(), 2.5);
  EXPECT_EQ(tuple.as_sequence()[2].as_string(), "ü");
  EXPECT_TRUE(read_back.at("inner").at("none").is_none());
  EXPECT_TRUE(at::equal(read_back.at("tensor").as_tensor(), values({2, 3}).t()));
  EXPECT_EQ(read_back.at("scalar").as_tensor().dim(), 0);
  EXPECT_EQ(read_back.at("empty").as_tensor().sizes(), at::IntArrayRef({0, 5}));
  EXPECT_EQ(read_back.at("flags").as_tensor().scalar_type(), at::kBool);
  EXPECT_TRUE(read_back.at("nothing").as_sequence().empty());
  EXPECT_TRUE(read_back.at("no keys").as_dict().items.empty());
  EXPECT_EQ(bytes_of(read_back), bytes_of(dict)) << "equal values make equal files";
}

TEST(TorchFile, AlignsTheDataOfTensorsAsTorchDoes) {
  const std::string bytes = bytes_of(TorchList{values({1}), values({3})});
  const std::string third(reinterpret_cast<const char*>(values({3}).const_data_ptr()), 12);
  EXPECT_EQ(bytes.find(third) % 64, 0U);
}

TEST(TorchFile, SaysWhatAValueIsWhereAnotherWasExpected) {
  const TorchValue value = TorchDict{{{"a", 1}}};
  EXPECT_GOLDEN(message_of<Error>([&] { (void)value.at("a").as_tensor(); }));
  EXPECT_GOLDEN(message_of<Error>([&] { (void)value.at("b"); }));
  EXPECT_EQ(value.find(int64_t{0}), nullptr);
}

TEST(TorchFile, FindsEveryFlippedBitInPickleAndTensors) {
  TorchDict dict;
  dict.set("a", values({40}));
  dict.set("b", "text");
  const std::string good = bytes_of(dict);
  check_torch_file(MemoryFile(good), "x.pt");
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    try {
      check_torch_file(MemoryFile(damaged), "x.pt");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      ++refused;
    }
  }
  // Padding, times and version fields are not checked; everything else is.
  EXPECT_GT(refused, good.size() - 450);
  const size_t data =
      good.find(std::string(reinterpret_cast<const char*>(values({40}).const_data_ptr()), 160));
  ASSERT_NE(data, std::string::npos);
  for (size_t i = data; i < data + 160; ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(check_torch_file(MemoryFile(damaged), "x.pt"), Error) << i;
  }
}

TEST(TorchFile, ThrowsForEveryCut) {
  const std::string good = bytes_of(TorchList{values({4}), 1});
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(check_torch_file(MemoryFile(good.substr(0, size)), "x.pt"), Error) << size;
  }
}

}  // namespace
}  // namespace finetune
