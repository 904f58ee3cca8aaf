// SPDX-License-Identifier: MIT
#include "finetune/kernels/sum_of_squares.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "finetune/base/error.h"
#include "kernels/sum_of_squares_cpu.h"

namespace finetune {
namespace {

constexpr int64_t kBlock = 16384;

double sum_of_block(const Tensor& values, int64_t first, int64_t count) {
  if (values.scalar_type() == at::kFloat) {
    return kernels::sum_of_squares(values.const_data_ptr<float>() + first, count);
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(values.const_data_ptr<at::BFloat16>());
  return kernels::sum_of_squares_of_bfloat16(bits + first, count);
}

}  // namespace

double sum_of_squares(const Tensor& values) {
  FT_CHECK(values.is_contiguous() &&
               (values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16),
           "contiguous float32 or bfloat16");
  if (!values.is_cpu()) {
    const double norm = at::linalg_vector_norm(values.to(at::kFloat)).item<double>();
    return norm * norm;
  }
  const int64_t blocks = (values.numel() + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      sums[static_cast<size_t>(block)] =
          sum_of_block(values, first, std::min(kBlock, values.numel() - first));
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace finetune
