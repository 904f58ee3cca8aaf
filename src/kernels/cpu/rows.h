// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "finetune/tensor/tensor.h"
#include "kernels/cpu/loops/vector_lanes.h"

// Connects tensors with the torch-free kernels over rows.
namespace finetune::kernels {

// Calls function(type) with a null pointer of the storage type of such a tensor.
template <typename Function>
void with_storage(at::ScalarType type, const Function& function) {
  if (type == at::kBFloat16) {
    function(static_cast<BFloat16Bits*>(nullptr));
  } else if (type == at::kHalf) {
    function(static_cast<HalfBits*>(nullptr));
  } else {
    function(static_cast<float*>(nullptr));
  }
}

// Divides rows into parts of which each sums columns. The division never depends on the number of
// threads, or the bits of sums would.
struct RowParts {
  int64_t rows;
  int64_t rows_per_part;

  explicit RowParts(int64_t count)
      : rows(count), rows_per_part(std::max<int64_t>(16, count / 32)) {}
  [[nodiscard]] int64_t count() const { return (rows + rows_per_part - 1) / rows_per_part; }
  [[nodiscard]] int64_t begin(int64_t part) const { return part * rows_per_part; }
  [[nodiscard]] int64_t end(int64_t part) const { return std::min(rows, begin(part + 1)); }
};

// Values that are worth a thread: waking one that sleeps takes as long as they do.
constexpr int64_t kValuesPerThread = 32768;

// Rows that are worth a thread.
inline int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(1, kValuesPerThread / std::max<int64_t>(1, columns));
}

// Parts that are.
inline int64_t part_grain(const RowParts& parts, int64_t columns) {
  return std::max<int64_t>(1, row_grain(columns) / parts.rows_per_part);
}

}  // namespace finetune::kernels
