// SPDX-License-Identifier: MIT
// Products of float32 matrices by the vectors of this processor. MKL, which ATen calls, uses
// 256-bit instructions on processors of other makers than Intel, and those at four fifths of their
// speed.
#include "finetune/kernels/token_product.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {
namespace {

// A part of b [kTerms, kColumns] is copied so that its rows follow each other, and stays in a
// core's cache while all rows of a are multiplied with it, kRows at a time. Sums of kTerms are
// added to the target one after the other, which also keeps rounding errors small.
constexpr int64_t kTerms = 384;
constexpr int64_t kColumns = 128;
constexpr int64_t kRows = 96;
constexpr int64_t kStep = 32;  // columns of b that follow each other in the copy
// Below these a call costs as much as it saves.
constexpr int64_t kLeastRows = 16;
constexpr int64_t kLeastProducts = int64_t{1} << 18;
constexpr int64_t kProductsOfThread = int64_t{1} << 20;

bool is_faster_than_mkl() {
#if defined(__x86_64__)
  static const bool is_faster = __builtin_cpu_is("amd") != 0 &&
                                __builtin_cpu_supports("avx2") != 0 &&
                                __builtin_cpu_supports("fma") != 0;
  return is_faster;
#else
  return false;
#endif
}

// Where a matrix is, with strides in values, one of which is 1.
struct Factor {
  const float* data;
  int64_t row, column;

  explicit Factor(const Tensor& x)
      : data(x.const_data_ptr<float>()), row(x.stride(0)), column(x.stride(1)) {}
  [[nodiscard]] const float* at(int64_t r, int64_t c) const { return data + r * row + c * column; }
};

struct Range {
  int64_t first, count;
  [[nodiscard]] int64_t end() const { return first + count; }
  // The part [from, from + most) of it.
  [[nodiscard]] Range part(int64_t from, int64_t most) const {
    return {from, std::min(most, end() - from)};
  }
};

int64_t steps_of(int64_t size, int64_t step) { return (size + step - 1) / step; }

// The i-th of `parts` parts of [0, size), of whole `step`s.
Range part_of(int64_t size, int64_t i, int64_t parts, int64_t step) {
  const int64_t steps = steps_of(size, step);
  const int64_t first = steps * i / parts * step;
  return {first, std::min(size, steps * (i + 1) / parts * step) - first};
}

// b in `terms` and `columns`, kStep columns after the others, with zeros after the last column.
void copy_columns(const Factor& b, const Range& terms, const Range& columns, float* to) {
  for (int64_t c = columns.first; c < columns.end(); c += kStep, to += terms.count * kStep) {
    const int64_t count = std::min(kStep, columns.end() - c);
    if (b.row == 1) {
      transpose_tile({.source = b.at(terms.first, c),
                      .stride = b.column,
                      .rows = count,
                      .width = terms.count,
                      .target = to,
                      .columns = kStep});
      continue;
    }
    for (int64_t k = 0; k < terms.count; ++k) {
      std::memcpy(to + k * kStep, b.at(terms.first + k, c),
                  static_cast<size_t>(count) * sizeof(float));
      std::fill(to + k * kStep + count, to + (k + 1) * kStep, 0.0F);
    }
  }
}

struct Product {
  Factor a, b;
  float* target;
  int64_t target_row;
  int64_t sums;
  bool adds;
};

// The memory of one thread.
struct Copies {
  std::vector<float> a = std::vector<float>(kRows * kTerms);
  std::vector<float> b = std::vector<float>(kTerms * kColumns);
};

// Some rows with the columns that are in the copy.
void multiply_rows(const Product& p, const Range& rows, const Range& terms, const Range& columns,
                   Copies& copies) {
  TileProduct tile = {.left = p.a.at(rows.first, terms.first),
                      .left_row = p.a.row,
                      .left_column = p.a.column,
                      .right = copies.b.data(),
                      .right_row = kStep,
                      .target = p.target + rows.first * p.target_row + columns.first,
                      .target_row = p.target_row,
                      .rows = rows.count,
                      .columns = 0,
                      .sums = terms.count};
  if (p.a.row == 1) {  // else each term would be in another page
    transpose_tile({.source = tile.left,
                    .stride = p.a.column,
                    .rows = terms.count,
                    .width = rows.count,
                    .target = copies.a.data(),
                    .columns = terms.count});
    tile.left = copies.a.data();
    tile.left_row = terms.count;
    tile.left_column = 1;
  }
  const bool adds = p.adds || terms.first > 0;
  for (int64_t c = 0; c < columns.count; c += kStep) {
    tile.columns = std::min(kStep, columns.count - c);
    adds ? add_product(tile) : set_product(tile);
    tile.right += terms.count * kStep;
    tile.target += kStep;
  }
}

void multiply(const Product& p, const Range& rows, const Range& columns) {
  static thread_local Copies copies;
  for (int64_t c = columns.first; c < columns.end(); c += kColumns) {
    const Range some = columns.part(c, kColumns);
    for (int64_t k = 0; k < p.sums; k += kTerms) {
      const Range terms = Range{0, p.sums}.part(k, kTerms);
      copy_columns(p.b, terms, some, copies.b.data());
      for (int64_t r = rows.first; r < rows.end(); r += kRows) {
        multiply_rows(p, rows.part(r, kRows), terms, some, copies);
      }
    }
  }
}

// Into how many parts rows and columns are divided for as many threads.
struct Division {
  int64_t rows, columns;
};

// That of the least time of a thread, by the values of its part and those that it copies first, of
// which one takes as long as kCopied products.
Division divide(const Product& p, int64_t rows, int64_t columns, int64_t threads) {
  constexpr int64_t kCopied = 12;
  Division best = {1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t r = 1; r <= threads; ++r) {
    const Division now = {std::min(r, steps_of(rows, kLeastRows)),
                          std::min(threads / r, steps_of(columns, kStep))};
    const int64_t own_rows = steps_of(steps_of(rows, kLeastRows), now.rows) * kLeastRows;
    const int64_t own_columns = steps_of(steps_of(columns, kStep), now.columns) * kStep;
    const int64_t copies_of_rows = p.a.row == 1 ? steps_of(own_columns, kColumns) : 0;
    const int64_t time =
        own_rows * own_columns + kCopied * (own_columns + copies_of_rows * own_rows);
    if (time < least) best = now;
    least = std::min(least, time);
  }
  return best;
}

}  // namespace

bool has_token_product(const Tensor& a, const Tensor& b) {
  if (!is_faster_than_mkl() || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat) {
    return false;
  }
  const auto has_rows = [](const Tensor& x) { return x.stride(0) == 1 || x.stride(1) == 1; };
  const int64_t products = a.size(0) * a.size(1) * b.size(1);
  return a.size(0) >= kLeastRows && products >= kLeastProducts && has_rows(a) && has_rows(b);
}

void token_product(const Tensor& target, const Tensor& a, const Tensor& b, double beta) {
  const int64_t rows = a.size(0);
  const int64_t columns = b.size(1);
  const Product product = {.a = Factor(a),
                           .b = Factor(b),
                           .target = target.mutable_data_ptr<float>(),
                           .target_row = target.stride(0),
                           .sums = a.size(1),
                           .adds = beta != 0.0};
  const int64_t most = std::max<int64_t>(1, rows * columns * product.sums / kProductsOfThread);
  const Division division =
      divide(product, rows, columns, std::min<int64_t>(at::get_num_threads(), most));
  at::parallel_for(0, division.rows * division.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      multiply(product, part_of(rows, i / division.columns, division.rows, kLeastRows),
               part_of(columns, i % division.columns, division.columns, kStep));
    }
  });
}

}  // namespace finetune::kernels::cpu
