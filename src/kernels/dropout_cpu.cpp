// SPDX-License-Identifier: MIT
#include "kernels/dropout_cpu.h"

#include <algorithm>

#include "kernels/philox_cpu.h"

namespace finetune::kernels {

FT_CLONES void dropout_rows(const DropoutRows& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const int64_t in_sample = r % rows.rows_per_sample;
    const auto place = rows.first_place + static_cast<uint32_t>(r / rows.rows_per_sample);
    const auto row = static_cast<uint32_t>((in_sample / rows.rows_per_head) << 16 |
                                           in_sample % rows.rows_per_head);
    const float* input = rows.input + r * rows.columns;
    float* output = rows.output + r * rows.columns;
    const DropoutRow numbers = {row,      place,          rows.layer_and_site,
                                rows.key, rows.threshold, rows.scale};
    for (int64_t column = 0; column < rows.columns; column += kDropoutNumbers) {
      float factor[kDropoutNumbers];
      dropout_factors(numbers, column, factor);
      const int64_t count = std::min<int64_t>(kDropoutNumbers, rows.columns - column);
      for (int64_t i = 0; i < count; ++i) output[column + i] = input[column + i] * factor[i];
    }
  }
}

}  // namespace finetune::kernels
