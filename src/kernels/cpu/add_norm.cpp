// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/add_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {
namespace {

size_t add_norm_scratch(int64_t columns) {
  return static_cast<size_t>(2 * columns + kDropoutNumbers);
}

RowPositions positions_of(const AddNorm& weights) {
  if (weights.layout == nullptr) return {};
  return {.sequences = weights.layout->sequences.const_data_ptr<int64_t>(),
          .positions = weights.layout->positions.const_data_ptr<int64_t>()};
}

// An undefined residual means that `sums` already contains s.
Tensor add_norm_forward(const Tensor& sums, const Tensor& bias, const Tensor& residual,
                        const AddNorm& weights) {
  const int64_t columns = sums.size(-1);
  const Tensor output = at::empty_like(sums);
  with_storage(sums.scalar_type(), [&]<typename Storage>(Storage*) {
    AddNormRows<Storage> rows = {
        .sums = static_cast<Storage*>(sums.mutable_data_ptr()),
        .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
        .residual =
            residual.defined() ? static_cast<const Storage*>(residual.const_data_ptr()) : nullptr,
        .output = static_cast<Storage*>(output.mutable_data_ptr()),
        .gamma = weights.gamma.const_data_ptr<float>(),
        .beta = weights.beta.const_data_ptr<float>(),
        .epsilon = static_cast<float>(weights.epsilon),
        .dropout = weights.dropout,
        .rows_per_sample = sums.size(-2),
        .row_positions = positions_of(weights),
        .first_row = 0,
        .last_row = 0,
        .columns = columns,
        .scratch = nullptr};
    at::parallel_for(0, sums.numel() / columns, row_grain(columns),
                     [&](int64_t begin, int64_t end) {
                       std::vector<float> scratch(add_norm_scratch(columns));
                       AddNormRows<Storage> part = rows;
                       part.first_row = begin;
                       part.last_row = end;
                       part.scratch = scratch.data();
                       add_norm_rows(part);
                     });
  });
  return output;
}

}  // namespace

Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                const AddNorm& weights) {
  return add_norm_forward(product, bias, residual, weights);
}

Tensor norm(const Tensor& sums, const AddNorm& weights) {
  return add_norm_forward(sums, Tensor(), Tensor(), weights);
}

// Every part of the rows sums its own gradients of gamma, beta and bias, [parts, 3, C]. The
// parts do not depend on the number of threads, so neither do the bits.
AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  const int64_t columns = sums.size(-1);
  const RowParts parts(sums.numel() / columns);
  const Tensor partial = at::zeros({parts.count(), 3, columns}, weights.gamma.options());
  with_storage(sums.scalar_type(), [&]<typename Storage>(Storage*) {
    const AddNormBackwardRows<Storage> rows = {
        .gradient = static_cast<Storage*>(gradient.mutable_data_ptr()),
        .sums = static_cast<Storage*>(sums.mutable_data_ptr()),
        .gamma = weights.gamma.const_data_ptr<float>(),
        .epsilon = static_cast<float>(weights.epsilon),
        .dropout = weights.dropout,
        .rows_per_sample = sums.size(-2),
        .row_positions = positions_of(weights),
        .first_row = 0,
        .last_row = 0,
        .columns = columns,
        .column_sums = partial.mutable_data_ptr<float>(),
        .scratch = nullptr};
    at::parallel_for(0, parts.count(), part_grain(parts, columns), [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(add_norm_scratch(columns));
      for (int64_t part = begin; part < end; ++part) {
        AddNormBackwardRows<Storage> some = rows;
        some.first_row = parts.begin(part);
        some.last_row = parts.end(part);
        some.column_sums += part * 3 * columns;
        some.scratch = scratch.data();
        add_norm_backward_rows(some);
      }
    });
  });
  const Tensor totals = partial.sum(0);
  return {.product = weights.dropout ? sums : gradient,
          .gamma = totals[0],
          .beta = totals[1],
          .bias = totals[2]};
}

}  // namespace finetune::kernels::cpu
