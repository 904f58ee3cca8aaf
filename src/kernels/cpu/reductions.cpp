// SPDX-License-Identifier: MIT
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/loops/sum_of_squares.h"
#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::cpu {
namespace {

double sum_of_block(const Tensor& values, int64_t first, int64_t count) {
  if (values.scalar_type() == at::kFloat) {
    return kernels::sum_of_squares(values.const_data_ptr<float>() + first, count);
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(values.const_data_ptr<at::BFloat16>());
  return kernels::sum_of_squares_of_bfloat16(bits + first, count);
}

}  // namespace

std::vector<double> block_sums_of_squares(const Tensor& values) {
  const int64_t blocks = (values.numel() + kSquaresBlock - 1) / kSquaresBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kSquaresBlock;
      sums[static_cast<size_t>(block)] =
          sum_of_block(values, first, std::min(kSquaresBlock, values.numel() - first));
    }
  });
  return sums;
}

double sum_of_squares(const Tensor& values) {
  const std::vector<double> sums = block_sums_of_squares(values);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double sum_of_all_squares(const std::vector<Tensor>& tensors) {
  double sum = 0.0;
  for (const Tensor& tensor : tensors) sum += sum_of_squares(tensor);
  return sum;
}

double mean(const Tensor& values) {
  const float* begin = values.const_data_ptr<float>();
  return std::accumulate(begin, begin + values.numel(), 0.0) / static_cast<double>(values.numel());
}

// In ATen's order of sums, which a change would show in every run.
std::vector<Tensor> sums_of_rows(const std::vector<Tensor>& matrices) {
  return plain::sums_of_rows(matrices);
}

void add_partial_sums(const std::vector<PartialSums>& sums) { plain::add_partial_sums(sums); }

}  // namespace finetune::kernels::cpu
