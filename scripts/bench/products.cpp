// SPDX-License-Identifier: MIT
// GFLOP/s of the CPU's products of float32 matrices and of those that ATen calls (MKL), one thread,
// as a Markdown table.
//
//   OMP_NUM_THREADS=1 build/products_benchmark
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "kernels/cpu/loops/tile_product.h"
#include "kernels/cpu/operations.h"

namespace {

using namespace finetune;
using namespace finetune::kernels;

// The best of five turns of about 0.2 s of CPU time.
template <typename Function>
double rate(double operations, const Function& function) {
  function();
  const auto calls = static_cast<int>(3e10 / operations) + 1;
  double best = 0.0;
  for (int turn = 0; turn < 5; ++turn) {
    const std::clock_t start = std::clock();
    for (int i = 0; i < calls; ++i) function();
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, operations * calls / seconds / 1e9);
  }
  return best;
}

void compare(const char* name, const Tensor& a, const Tensor& b) {
  const int64_t rows = a.size(0);
  const int64_t columns = b.size(1);
  Tensor target = at::empty({rows, columns});
  const double operations = 2.0 * static_cast<double>(rows * columns * a.size(1));
  const double theirs = rate(operations, [&] { at::mm_out(target, a, b); });
  const double ours = rate(operations, [&] { cpu::token_product(target, a, b, 0.0); });
  std::printf("| %s | %d x %d x %d | %.0f | %.0f |\n", name, static_cast<int>(rows),
              static_cast<int>(a.size(1)), static_cast<int>(columns), ours, theirs);
}

// Scores of one of twelve heads of 64 values: rows of 768 values.
void compare_scores(int64_t tokens) {
  const Tensor all = at::randn({2, tokens, 768});
  const Tensor query = all[0].narrow(1, 64, 64);
  const Tensor key = all[1].narrow(1, 64, 64);
  const Tensor transposed = at::empty({64, whole_vectors(tokens)});
  Tensor scores = at::empty({tokens, tokens});
  const double operations = 2.0 * static_cast<double>(tokens * tokens * 64);
  const double theirs = rate(operations, [&] { at::mm_out(scores, query, key.t()); });
  const double ours = rate(operations, [&] {
    transpose_tile({.source = key.const_data_ptr<float>(),
                    .stride = key.stride(0),
                    .rows = tokens,
                    .width = 64,
                    .target = transposed.mutable_data_ptr<float>(),
                    .columns = transposed.size(1)});
    set_product({.left = query.const_data_ptr<float>(),
                 .left_row = query.stride(0),
                 .left_column = 1,
                 .right = transposed.const_data_ptr<float>(),
                 .right_row = transposed.size(1),
                 .target = scores.mutable_data_ptr<float>(),
                 .target_row = tokens,
                 .rows = tokens,
                 .columns = tokens,
                 .sums = 64});
  });
  std::printf("| scores of a head | %d x 64 x %d | %.0f | %.0f |\n", static_cast<int>(tokens),
              static_cast<int>(tokens), ours, theirs);
}

}  // namespace

int main() {
  std::printf("| product | size | GFLOP/s | ATen's |\n|---|---|---|---|\n");
  for (const int64_t tokens : {512, 51}) {
    const Tensor x = at::randn({tokens, 768});
    const Tensor weight = at::randn({3072, 768});
    const Tensor dy = at::randn({tokens, 3072});
    compare("x W^T", x, weight.t());
    compare("dy W", dy, weight);
    compare("dy^T x", dy.t(), x);
  }
  for (const int64_t tokens : {37, 128, 512}) compare_scores(tokens);
  return 0;
}
