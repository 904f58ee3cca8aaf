// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include <span>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"
#include "kernels/partial_sums.h"

namespace finetune::kernels::cuda {
namespace {

void launch_sums(std::span<const PartialSums> sums) {
  Launch launch(sums.front().target);
  ColumnSumsArguments arguments = {};
  int64_t blocks = 0;
  for (const PartialSums& one : sums) {
    arguments.sums[arguments.count++] = {.parts = launch.reads<float>(one.parts),
                                         .target = launch.changes(one.target),
                                         .count = one.parts.size(0),
                                         .columns = one.parts.size(1),
                                         .first_block = blocks,
                                         .rounding_key = one.key.key,
                                         .is_rounded = one.target.scalar_type() != at::kFloat};
    blocks += (one.parts.size(1) + kWarp - 1) / kWarp;
  }
  launch.run<kernel::column_sums>(ValueType::kFloat32, 0, {.x = blocks}, arguments);
}

}  // namespace

Tensor sum_of_rows(const Tensor& rows) {
  if (rows.numel() == 0) return plain::sum_of_rows(rows);
  const Tensor values = rows.contiguous();
  const int64_t columns = values.size(1);
  const RowParts blocks(values.size(0));
  const Tensor parts = at::empty({blocks.count, columns}, values.options().dtype(at::kFloat));
  Launch launch(values);
  const PartialSumsArguments arguments = {.rows = launch.reads(values),
                                          .parts = launch.writes<float>(parts),
                                          .count = values.size(0),
                                          .rows_at_once = blocks.rows_at_once,
                                          .columns = columns,
                                          .is_aligned = is_aligned(columns, {values, parts})};
  const int threads = threads_for(columns);
  launch.run<kernel::partial_sums>(
      value_type_of(values), 0,
      {.x = (columns + 4 * threads - 1) / (4 * threads), .y = blocks.count, .threads = threads},
      arguments);
  return parts;
}

void add_partial_sums(const std::vector<PartialSums>& sums) {
  std::span<const PartialSums> rest = sums;
  while (!rest.empty()) {
    const size_t count = std::min<size_t>(rest.size(), kSumsOfLaunch);
    launch_sums(rest.first(count));
    rest = rest.subspan(count);
  }
}

}  // namespace finetune::kernels::cuda
