// SPDX-License-Identifier: MIT
#include "export/onnx/onnx_file.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

class OnnxFileTest : public ::testing::Test {
 protected:
  OnnxFileTest() {
    model_.nodes = {{"MatMul", {"x", "weight"}, {"y"}}};
    model_.initializers = {lazy_tensor("weight", weight_), lazy_tensor("codes", codes_),
                           lazy_tensor("one", at::full({}, 7, at::kLong))};
    model_.inputs = {{.name = "x", .type = at::kFloat, .shape = {std::string("batch_size"), 40}}};
    model_.outputs = {{.name = "y", .type = at::kFloat, .shape = {std::string("batch_size"), 10}}};
  }
  void write(const ExternalData& external) {
    const auto file = FileSystem::local().create(path());
    write_onnx(*file, model_, external);
    file->close();
  }
  [[nodiscard]] std::string path() const { return folder_ / "model.onnx"; }
  [[nodiscard]] std::vector<OnnxEntry> entries() const {
    return read_onnx(*FileSystem::local().open(path()), path());
  }
  static Tensor values_at(const std::string& path, const OnnxEntry& entry) {
    Tensor values = at::empty(entry.shape, at::TensorOptions(entry.type));
    FileSystem::local().open(path)->read_at(entry.offset, values.mutable_data_ptr(), entry.bytes);
    return values;
  }

  TemporaryFolder folder_;
  Tensor weight_ = at::arange(400, at::kFloat).view({40, 10}) / 7.0;
  Tensor codes_ = at::arange(-20, 20, at::kChar).view({2, 20});
  OnnxModel model_;
};

TEST_F(OnnxFileTest, HasTheInitializersThatWereWritten) {
  write({});
  EXPECT_EQ(FileSystem::local().open(path())->size(), onnx_bytes(model_, {}));
  const auto found = entries();
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0].name, "weight");
  EXPECT_TRUE(values_at(path(), found[0]).equal(weight_));
  EXPECT_EQ(found[1].type, at::kChar);
  EXPECT_TRUE(values_at(path(), found[1]).equal(codes_));
  EXPECT_TRUE(found[2].shape.empty());
  EXPECT_EQ(values_at(path(), found[2]).item<int64_t>(), 7);
}

TEST_F(OnnxFileTest, PutsLargeInitializersIntoASecondFile) {
  const ExternalData external = plan_external_data(model_, "model.onnx_data");
  EXPECT_EQ(external.bytes, 1600);
  write(external);
  const auto data = FileSystem::local().create(folder_ / "model.onnx_data");
  write_external_data(*data, model_, external);
  data->close();
  const auto found = entries();
  EXPECT_EQ(found[0].location, "model.onnx_data");
  EXPECT_EQ(found[0].offset % 4096, 0);
  EXPECT_TRUE(values_at(folder_ / "model.onnx_data", found[0]).equal(weight_));
  EXPECT_EQ(found[1].location, "");
  EXPECT_TRUE(values_at(path(), found[1]).equal(codes_));
}

TEST_F(OnnxFileTest, RefusesWeightsThatAreNotFinite) {
  weight_[3][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(write({}), Error);
}

TEST_F(OnnxFileTest, RefusesADamagedFileOfAnyLength) {
  write({});
  const std::string whole = FileSystem::local().read_all(path());
  size_t refused = 0;
  for (size_t length = 0; length < whole.size(); length += 13) {
    folder_.write("model.onnx", whole.substr(0, length));
    try {
      (void)entries();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      EXPECT_THAT(error.what(), HasSubstr("is no file of ONNX"));
      ++refused;
    }
  }
  EXPECT_GT(refused, whole.size() / 13 - 10);
  std::string sizes = whole;  // the length of an initializer's values
  sizes[sizes.find("weight", 60) - 4] = '\x7f';
  folder_.write("model.onnx", sizes);
  EXPECT_THROW((void)entries(), Error);
}

}  // namespace
}  // namespace finetune
