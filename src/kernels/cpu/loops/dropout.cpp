// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/dropout.h"

#include <cstddef>
#include <vector>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {

FT_CLONES void dropout_rows(const DropoutRows& rows) {
  std::vector<float> factors(static_cast<size_t>(rows.columns + kDropoutNumbers));
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const bool divides = rows.sequences == nullptr;
    const int64_t in_sample = divides ? r % rows.rows_per_sample : rows.positions[r];
    const int64_t sample = divides ? r / rows.rows_per_sample : rows.sequences[r];
    const auto position = rows.first_position + static_cast<uint32_t>(sample);
    const auto row = static_cast<uint32_t>((in_sample / rows.rows_per_head) << 16 |
                                           in_sample % rows.rows_per_head);
    const float* input = rows.input + r * rows.columns;
    float* output = rows.output + r * rows.columns;
    dropout_factors({row, position, rows.layer_and_site, rows.key, rows.threshold, rows.scale},
                    rows.columns, factors.data());
    for (int64_t column = 0; column < rows.columns; ++column) {
      output[column] = input[column] * factors[column];
    }
  }
}

}  // namespace finetune::kernels
