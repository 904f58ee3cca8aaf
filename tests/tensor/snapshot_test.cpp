// SPDX-License-Identifier: MIT
#include "finetune/tensor/snapshot.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

namespace finetune {
namespace {

std::string bytes_of(const LazyTensor& tensor) {
  std::string bytes;
  for_each_piece(tensor, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  return bytes;
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

TEST(Snapshot, KeepsTheValuesThatTensorsHadWhenTheyWereDetached) {
  Tensor matrix = at::arange(12, at::kFloat).view({4, 3});
  Tensor scalar = at::full({}, 7, at::kLong);
  const std::string matrix_then = bytes_of(matrix);
  const std::string scalar_then = bytes_of(scalar);
  Snapshot snapshot;
  const LazyTensor held_matrix = snapshot.hold("m", matrix);
  const LazyTensor held_scalar = snapshot.hold("s", scalar);
  ASSERT_TRUE(snapshot.detach());
  matrix.fill_(-1);
  scalar.fill_(-1);
  EXPECT_EQ(bytes_of(held_matrix), matrix_then);
  EXPECT_EQ(bytes_of(held_scalar), scalar_then);
  EXPECT_EQ(held_matrix.name, "m");
  EXPECT_EQ(held_matrix.shape, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(held_scalar.type, at::kLong);
}

TEST(Snapshot, ReadsLiveTensorsWithoutACopyBeforeThat) {
  Tensor tensor = at::full({8}, 1, at::kFloat);
  Snapshot snapshot;
  const LazyTensor held = snapshot.hold("t", tensor);
  tensor.fill_(2);
  EXPECT_EQ(bytes_of(held), bytes_of(tensor));
}

TEST(Snapshot, GivesTheSameBytesTwice) {
  Tensor tensor = at::arange(1000, at::kFloat);
  const std::string then = bytes_of(tensor);
  Snapshot snapshot;
  const LazyTensor held = snapshot.hold("t", tensor);
  EXPECT_EQ(bytes_of(held), then);
  ASSERT_TRUE(snapshot.detach());
  tensor.zero_();
  EXPECT_EQ(bytes_of(held), then);
  EXPECT_EQ(bytes_of(held), then);
}

TEST(Snapshot, TakesTensorsThatAreNotContiguous) {
  Tensor tensor = at::arange(12, at::kFloat).view({3, 4}).t();
  const std::string then = bytes_of(tensor.contiguous());
  Snapshot snapshot;
  const LazyTensor held = snapshot.hold("t", tensor);
  EXPECT_EQ(bytes_of(held), then);
  ASSERT_TRUE(snapshot.detach());
  tensor.zero_();
  EXPECT_EQ(bytes_of(held), then);
}

TEST(Snapshot, OutlivedByItsTensors) {
  LazyTensor held;
  Tensor tensor = at::full({5}, 3, at::kFloat);
  const std::string then = bytes_of(tensor);
  {
    Snapshot snapshot;
    held = snapshot.hold("t", tensor);
    ASSERT_TRUE(snapshot.detach());
  }
  tensor.zero_();
  EXPECT_EQ(bytes_of(held), then);
}

// A reader in the middle of a tensor continues to see the snapshot's values.
TEST(Snapshot, IsDetachedUnderAReader) {
  const int64_t rows = 64;
  Tensor tensor = at::arange(rows * (int64_t{1} << 18), at::kFloat).view({rows, -1});  // 64 MiB
  const std::string then = bytes_of(tensor);
  Snapshot snapshot;
  const LazyTensor held = snapshot.hold("t", tensor);
  std::string read;
  std::thread reader([&] { read = bytes_of(held); });
  ASSERT_TRUE(snapshot.detach());
  tensor.fill_(-1);
  reader.join();
  EXPECT_TRUE(read == then);
}

}  // namespace
}  // namespace finetune
