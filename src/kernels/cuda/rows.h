// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "finetune/kernels/token_layout.h"
#include "kernels/cuda/launch.h"
#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels::cuda {

// Divides rows [.., C] among at most kParts blocks on every GPU, so that sums over rows always have
// the same order.
struct RowParts {
  static constexpr int64_t kParts = 256;
  // Of norms, whose blocks wait for sums over each row.
  static constexpr int64_t kNormParts = 1024;

  explicit RowParts(int64_t rows, int64_t parts = kParts)
      : rows_at_once(std::max<int64_t>(1, (rows + parts - 1) / parts)),
        count((rows + rows_at_once - 1) / rows_at_once) {}

  int64_t rows_at_once;
  int64_t count;
};

// Returns how many threads (whole warps) hold `columns` values, each thread 4 * `vectors` of them.
inline int threads_for(int64_t columns, int64_t vectors = 1) {
  const int64_t lanes = (columns + 4 * vectors - 1) / (4 * vectors);
  return static_cast<int>(
      std::clamp<int64_t>((lanes + kWarp - 1) / kWarp * kWarp, kWarp, kThreads));
}

// Returns the smallest v such that `threads` threads with 2^v * 4 values each hold `columns`
// values.
inline int variant_for(int64_t columns, int64_t threads) {
  int variant = 0;
  while ((threads << variant) * 4 < columns) ++variant;
  return variant;
}

[[nodiscard]] DropoutArguments dropout_arguments(const std::optional<DropoutNumbers>& numbers,
                                                 int64_t rows_per_sample, const TokenLayout* layout,
                                                 Launch& launch);

}  // namespace finetune::kernels::cuda
