// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

double sum_of_squares(const Tensor& values) {
  const double norm = at::linalg_vector_norm(values.to(at::kFloat)).item<double>();
  return norm * norm;
}

double mean(const Tensor& values) { return values.mean().item<double>(); }

// Unlike index_add_, which adds atomically: sorted, so that runs have equal bits.
void sum_rows(const Tensor& target, const Tensor& indices, const Tensor& rows) {
  target.index_put_({indices}, rows, /*accumulate=*/true);
}

void add_rows(const Tensor& target, const Tensor& indices, const Tensor& rows, int64_t skipped) {
  const Tensor kept = indices.ne(skipped).nonzero().squeeze(1);
  if (kept.numel() == 0) return;
  const auto [unique, inverse, counts] =
      at::_unique2(indices.index_select(0, kept), true, true, false);
  const Tensor sums = at::zeros({unique.numel(), rows.size(1)}, rows.options());
  sum_rows(sums, inverse, rows.index_select(0, kept));
  target.index_add_(0, unique, sums);
}

}  // namespace finetune::kernels::plain
