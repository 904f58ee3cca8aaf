// SPDX-License-Identifier: MIT
#include <ATen/Parallel.h>
#include <ATen/ops/sort.h>

#include <vector>

#include "kernels/cpu/operations.h"

namespace finetune::kernels::cpu {

// Rows with the same index are summed in their order, so threads divide the indices among them.
void add_rows(const Tensor& gradient, const Tensor& indices, const Tensor& rows, int64_t skipped) {
  const Tensor order = std::get<1>(at::sort(indices, /*stable=*/true, 0, false));
  const Tensor sorted = indices.index_select(0, order);
  const int64_t count = sorted.numel();
  const int64_t columns = rows.size(1);
  const int64_t* index = sorted.const_data_ptr<int64_t>();
  const int64_t* position = order.const_data_ptr<int64_t>();
  const float* source = rows.const_data_ptr<float>();
  float* target = gradient.mutable_data_ptr<float>();
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0 || index[i] != index[i - 1]) starts.push_back(i);
  }
  starts.push_back(count);
  at::parallel_for(0, static_cast<int64_t>(starts.size()) - 1, 16, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const auto first = starts[static_cast<size_t>(run)];
      if (index[first] == skipped) continue;
      float* sum = target + index[first] * columns;
      for (int64_t i = first; i < starts[static_cast<size_t>(run) + 1]; ++i) {
        const float* row = source + position[i] * columns;
        for (int64_t c = 0; c < columns; ++c) sum[c] += row[c];
      }
    }
  });
}

void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  add_rows(target, indices, rows, -1);
}

}  // namespace finetune::kernels::cpu
