// SPDX-License-Identifier: MIT
// The order of rows that llama.cpp asks for; tests/llama_cpp/run.py compares its answers.
#include "export/gguf_layout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

using ::testing::ElementsAre;

GgufTensor tensor_of(const Tensor& values) {
  return {.name = "t",
          .shape = values.sizes().vec(),
          .rows = [values](int64_t first, int64_t count) { return values.narrow(0, first, count); },
          .restored = [](const Tensor& stored) { return stored; }};
}

Tensor numbers(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::arange(1.0, static_cast<double>(count) + 1.0, at::kFloat).reshape(shape);
}

// The rows of `tensor`, read `piece` at a time.
Tensor read(const GgufTensor& tensor, int64_t piece) {
  std::vector<Tensor> parts;
  for (int64_t row = 0; row < tensor.shape[0]; row += piece) {
    parts.push_back(tensor.rows(row, std::min(piece, tensor.shape[0] - row)));
  }
  return at::cat(parts, 0);
}

// That pieces of any size are those of the whole, which is restored; returns the whole.
Tensor check(const GgufTensor& tensor, const Tensor& source) {
  const Tensor whole = read(tensor, tensor.shape[0]);
  EXPECT_EQ(whole.sizes(), at::IntArrayRef(tensor.shape));
  for (int64_t piece = 1; piece < tensor.shape[0]; ++piece) {
    EXPECT_TRUE(at::equal(read(tensor, piece), whole)) << piece << " rows at a time";
  }
  EXPECT_TRUE(at::allclose(tensor.restored(whole), source, 1e-6, 0.0));
  EXPECT_EQ(tensor.restored(whole).sizes(), source.sizes());
  return whole;
}

std::vector<float> values_of(const Tensor& tensor) {
  const Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

TEST(GgufLayout, InterleavesTheHalvesOfEachHead) {
  const Tensor source = numbers({8, 1});
  GgufTensor tensor = tensor_of(source);
  interleave_halves(tensor, 2);
  EXPECT_THAT(values_of(check(tensor, source)), ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
}

TEST(GgufLayout, ExchangesGroupsOfRowsAfterThoseThatStay) {
  const Tensor source = numbers({2 + 2 * 3 * 2});
  GgufTensor tensor = tensor_of(source);
  exchange_row_groups(tensor, 2, 2, 3, 2);
  EXPECT_THAT(values_of(check(tensor, source)),
              ElementsAre(1, 2, 3, 4, 9, 10, 5, 6, 11, 12, 7, 8, 13, 14));
}

TEST(GgufLayout, ExchangesGroupsOfRowsOfAMatrix) {
  const Tensor source = numbers({12, 5});
  GgufTensor tensor = tensor_of(source);
  exchange_row_groups(tensor, 0, 4, 3, 1);
  EXPECT_TRUE(at::equal(check(tensor, source),
                        source.reshape({4, 3, 1, 5}).transpose(0, 1).reshape({12, 5})));
}

TEST(GgufLayout, ExchangesGroupsOfColumns) {
  const Tensor source = numbers({2, 6});
  GgufTensor tensor = tensor_of(source);
  exchange_column_groups(tensor, 3, 2, 1);
  EXPECT_THAT(values_of(check(tensor, source)), ElementsAre(1, 3, 5, 2, 4, 6, 7, 9, 11, 8, 10, 12));
}

TEST(GgufLayout, TransposesAndRemovesTheMiddle) {
  const Tensor matrix = numbers({2, 3});
  GgufTensor tensor = tensor_of(matrix);
  transpose(tensor);
  EXPECT_TRUE(at::equal(check(tensor, matrix), matrix.t()));
  const Tensor convolution = numbers({4, 1, 3});
  GgufTensor narrow = tensor_of(convolution);
  remove_middle(narrow);
  EXPECT_TRUE(at::equal(check(narrow, convolution), convolution.squeeze(1)));
}

TEST(GgufLayout, ChangesValuesAfterTheirOrder) {
  const Tensor source = numbers({4}) / 4.0;
  GgufTensor tensor = tensor_of(source);
  exchange_row_groups(tensor, 0, 2, 2, 1);
  negate_exponential(tensor);
  EXPECT_TRUE(at::equal(check(tensor, source), -source.reshape({2, 2}).t().reshape(4).exp()));
  GgufTensor norm = tensor_of(source);
  add_one(norm);
  EXPECT_TRUE(at::equal(check(norm, source), source + 1.0));
}

}  // namespace
}  // namespace finetune
