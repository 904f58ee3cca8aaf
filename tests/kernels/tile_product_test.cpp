// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/tile_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<int64_t> kSizes = {1, 2, 7, 8, 13, 16, 40, 67};

// [rows, columns] of longer rows, as a head's are within those of all heads; NaN after them.
Tensor draw_in_rows(int64_t rows, int64_t columns) {
  const Tensor all = at::full({rows, columns + 32}, kNan, at::kFloat);
  const Tensor part = all.narrow(1, 0, columns);
  part.copy_(at::randn({rows, columns}));
  return part;
}

TileProduct product_of(const Tensor& target, const Tensor& left, const Tensor& right,
                       float scale = 1.0F) {
  return {.left = left.const_data_ptr<float>(),
          .left_row = left.stride(0),
          .left_column = left.stride(1),
          .right = right.const_data_ptr<float>(),
          .right_row = right.stride(0),
          .target = target.mutable_data_ptr<float>(),
          .target_row = target.stride(0),
          .rows = target.size(0),
          .columns = target.size(1),
          .sums = left.size(1),
          .scale = scale};
}

double relative_error(const Tensor& result, const Tensor& expected) {
  return (result.to(at::kDouble) - expected).abs().max().item<double>() /
         expected.abs().max().item<double>();
}

template <class Check>
void for_each_size(const Check& check) {
  at::manual_seed(3);
  for (const int64_t rows : kSizes) {
    for (const int64_t columns : kSizes) {
      for (const int64_t sums : {int64_t{1}, int64_t{3}, int64_t{64}}) {
        for (const bool is_transposed : {false, true}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << sums << " x " << columns);
          check(is_transposed ? draw_in_rows(sums, rows).t() : draw_in_rows(rows, sums),
                draw_in_rows(sums, columns));
        }
      }
    }
  }
}

// A sum of 64 terms in float32.
constexpr double kClose = 1e-5;

TEST(TileProduct, MultipliesFactorsOfEverySize) {
  for_each_size([](const Tensor& left, const Tensor& right) {
    const Tensor whole = at::full({left.size(0), right.size(1) + 5}, -3.0F, at::kFloat);
    const Tensor target = whole.narrow(1, 0, right.size(1));
    target.fill_(kNan);
    const Tensor expected = left.to(at::kDouble).mm(right.to(at::kDouble));
    set_product(product_of(target, left, right, 0.5F));
    EXPECT_LE(relative_error(target, 0.5 * expected), kClose);
    add_product(product_of(target, left, right, 2.0F));
    EXPECT_LE(relative_error(target, 2.5 * expected), kClose);
    EXPECT_TRUE(whole.narrow(1, right.size(1), 5).eq(-3.0F).all().item<bool>()) << "after its end";
  });
}

// Samples are computed in tiles of other sizes when memory is short or a cache holds tokens.
TEST(TileProduct, GivesAValueTheSameBitsInEveryTile) {
  for_each_size([](const Tensor& left, const Tensor& right) {
    const Tensor all = at::full({left.size(0), right.size(1)}, 0.7F, at::kFloat);
    add_product(product_of(all, left, right, 0.3F));
    const Tensor last = at::full({1, 1}, 0.7F, at::kFloat);
    add_product(product_of(last, left.narrow(0, left.size(0) - 1, 1),
                           right.narrow(1, right.size(1) - 1, 1), 0.3F));
    EXPECT_EQ(last.item<float>(), all[-1][-1].item<float>());
  });
}

TEST(TileProduct, Transposes) {
  at::manual_seed(3);
  for (const int64_t rows : kSizes) {
    for (const int64_t width : kSizes) {
      const Tensor source = draw_in_rows(rows, width);
      const Tensor target = at::full({width, whole_vectors(rows)}, kNan, at::kFloat);
      transpose_tile({.source = source.const_data_ptr<float>(),
                      .stride = source.stride(0),
                      .rows = rows,
                      .width = width,
                      .target = target.mutable_data_ptr<float>(),
                      .columns = target.size(1)});
      EXPECT_TRUE(at::equal(target.narrow(1, 0, rows), source.t())) << rows << " x " << width;
      EXPECT_TRUE(target.narrow(1, rows, target.size(1) - rows).eq(0).all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace finetune::kernels
