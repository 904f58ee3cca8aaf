// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::cpu {

Tensor dropout(const Tensor& input, const DropoutNumbers& numbers, const TokenLayout* layout) {
  if (input.scalar_type() != at::kFloat) return plain::dropout(input, numbers, layout);
  const Tensor x = input.contiguous();
  const Tensor output = at::empty_like(x);
  const int64_t columns = x.size(-1);
  const int64_t rows_per_head = x.size(-2);
  const int64_t rows_per_sample = x.dim() == 4 ? x.size(1) * rows_per_head : rows_per_head;
  const int64_t rows = x.size(0) * rows_per_sample;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    dropout_rows(
        {.input = x.const_data_ptr<float>(),
         .output = output.mutable_data_ptr<float>(),
         .first_row = begin,
         .last_row = end,
         .columns = columns,
         .rows_per_sample = rows_per_sample,
         .rows_per_head = layout == nullptr ? rows_per_head : 1 << 16,
         .sequences = layout == nullptr ? nullptr : layout->sequences.const_data_ptr<int64_t>(),
         .positions = layout == nullptr ? nullptr : layout->positions.const_data_ptr<int64_t>(),
         .key = numbers.key,
         .first_position = numbers.first_position,
         .layer_and_site = numbers.layer_and_site,
         .threshold = numbers.threshold(),
         .scale = numbers.scale()});
  });
  return output;
}

}  // namespace finetune::kernels::cpu
