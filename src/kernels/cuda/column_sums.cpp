// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>

#include <span>

#include "finetune/kernels/partial_sums.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

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

// Returns the sums of each matrix's blocks of rows: [matrices, blocks, columns].
Tensor launch_parts(std::span<const Tensor> matrices) {
  const Tensor& first = matrices.front();
  const int64_t columns = first.size(1);
  const RowParts blocks(first.size(0));
  const int threads = threads_for(columns);
  const int64_t blocks_of_each = (columns + 4 * threads - 1) / (4 * threads);
  const auto count = static_cast<int64_t>(matrices.size());
  const Tensor parts = at::empty({count, blocks.count, columns}, first.options().dtype(at::kFloat));
  Launch launch(first);
  PartialSumsArguments arguments = {.rows = {},
                                    .parts = launch.writes<float>(parts),
                                    .count = first.size(0),
                                    .rows_at_once = blocks.rows_at_once,
                                    .blocks = blocks.count,
                                    .columns = columns,
                                    .blocks_of_each = static_cast<int>(blocks_of_each),
                                    .is_aligned = is_aligned(columns, {parts})};
  std::vector<Tensor> contiguous;  // until the launch
  for (size_t i = 0; i < matrices.size(); ++i) {
    contiguous.push_back(matrices[i].contiguous());
    arguments.rows[i] = launch.reads(contiguous.back());
    if (!is_aligned(columns, {contiguous.back()})) arguments.is_aligned = 0;
  }
  launch.run<kernel::partial_sums>(
      value_type_of(first), 0, {.x = count * blocks_of_each, .y = blocks.count, .threads = threads},
      arguments);
  return parts;
}

}  // namespace

std::vector<Tensor> sums_of_rows(const std::vector<Tensor>& matrices) {
  if (matrices.front().numel() == 0) return plain::sums_of_rows(matrices);
  std::vector<Tensor> sums;
  std::span<const Tensor> rest = matrices;
  while (!rest.empty()) {
    const size_t count = std::min<size_t>(rest.size(), kMatricesOfLaunch);
    for (const Tensor& parts : launch_parts(rest.first(count)).unbind()) sums.push_back(parts);
    rest = rest.subspan(count);
  }
  return sums;
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
