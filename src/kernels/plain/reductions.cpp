// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

double sum_of_squares(const Tensor& values) {
  const double norm = at::linalg_vector_norm(values.to(at::kFloat)).item<double>();
  return norm * norm;
}

double sum_of_all_squares(const std::vector<Tensor>& tensors) {
  return sum_of_squares(at::stack(at::_foreach_norm(tensors, 2, at::kFloat)));
}

std::vector<double> block_sums_of_squares(const Tensor& values) {
  std::vector<double> sums;
  const auto add = [&](const Tensor& blocks) {
    const Tensor of_blocks = blocks.to(at::kFloat).square().sum(1).cpu();
    for (int64_t i = 0; i < of_blocks.numel(); ++i) sums.push_back(of_blocks[i].item<double>());
  };
  const int64_t whole = values.numel() / kSquaresBlock * kSquaresBlock;
  const Tensor flat = values.view(-1);
  if (whole > 0) add(flat.narrow(0, 0, whole).view({-1, kSquaresBlock}));
  if (whole < flat.numel()) add(flat.narrow(0, whole, flat.numel() - whole).unsqueeze(0));
  return sums;
}

double mean(const Tensor& values) { return values.mean().item<double>(); }

std::vector<Tensor> sums_of_rows(const std::vector<Tensor>& matrices) {
  std::vector<Tensor> sums;
  for (const Tensor& rows : matrices) {
    sums.push_back(rows.sum(0, /*keepdim=*/false, compute_type(rows)));
  }
  return sums;
}

void add_partial_sums(const std::vector<PartialSums>& sums) {
  for (const PartialSums& one : sums) {
    const Tensor sum = one.parts.sum(0).view_as(one.target);
    if (one.target.scalar_type() == at::kFloat) {
      one.target.add_(sum);
    } else {
      finetune::add_stochastically(one.target, sum, one.key);
    }
  }
}

// Unlike index_add_, which adds atomically: sorted, so that runs have equal bits.
void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  target.index_put_({indices}, rows, /*accumulate=*/true);
}

void add_rows(const Tensor& target, const Tensor& indices, const Tensor& rows, int64_t skipped) {
  if (skipped < 0) return sum_rows(target, indices, rows);
  // Adds zeros for skipped rows: to count the others, the host would have to wait for the device.
  const Tensor is_skipped = indices.eq(skipped);
  sum_rows(target, indices.masked_fill(is_skipped, 0),
           rows.masked_fill(is_skipped.unsqueeze(1), 0.0));
}

}  // namespace finetune::kernels::plain
