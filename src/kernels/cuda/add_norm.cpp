// SPDX-License-Identifier: MIT
#include "kernels/interface/add_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

bool has_norm_kernel(const Tensor& rows, const AddNorm& weights) {
  return rows.size(-1) <= kLongestNorm && rows.numel() > 0 && weights.gamma.defined() &&
         weights.beta.defined() && weights.gamma.scalar_type() == at::kFloat;
}

// How rows are divided among threads (device/add_norm.cu).
struct Division {
  int variant = 0;
  int threads = kNormWarps * kWarp;
  int rows = kNormWarps;  // of a block at once

  Division(const Tensor& sums, bool is_aligned) {
    const int64_t columns = sums.size(-1);
    const int shapes = sums.element_size() == 4 ? kWideNormWarpShapes : kNormWarpShapes;
    while (variant < shapes && columns > kNormWarpColumns[variant]) ++variant;
    if (is_aligned && variant < shapes) return;
    threads = threads_for(columns);
    variant = kNormWarpShapes + variant_for(columns, threads);
    rows = 1;
  }
};

Tensor launch_norm(const Tensor& sums, const Tensor& bias, const Tensor& residual,
                   const AddNorm& weights) {
  const int64_t columns = sums.size(-1);
  const Tensor result = at::empty_like(sums);
  Launch launch(sums);
  const bool adds = residual.defined();
  const AddNormArguments arguments = {
      .sums = adds ? launch.changes(sums) : const_cast<void*>(launch.reads(sums)),
      .residual = launch.reads(residual),
      .bias = launch.reads<float>(bias),
      .gamma = launch.reads<float>(weights.gamma),
      .beta = launch.reads<float>(weights.beta),
      .result = launch.writes(result),
      .rows = sums.numel() / columns,
      .columns = columns,
      .epsilon = static_cast<float>(weights.epsilon),
      .is_aligned =
          is_aligned(columns, {sums, bias, residual, weights.gamma, weights.beta, result}),
      .dropout = dropout_arguments(adds ? weights.dropout : std::nullopt, sums.size(-2),
                                   weights.layout, launch)};
  const Division division(sums, arguments.is_aligned != 0);
  launch.run<kernel::add_norm>(
      value_type_of(sums), division.variant,
      {.x = (arguments.rows + division.rows - 1) / division.rows, .threads = division.threads},
      arguments);
  return result;
}

}  // namespace

Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                const AddNorm& weights) {
  if (!has_norm_kernel(product, weights) || residual.scalar_type() != product.scalar_type()) {
    return plain::add_norm(product, bias, residual, weights);
  }
  return launch_norm(product, bias, residual, weights);
}

Tensor norm(const Tensor& sums, const AddNorm& weights) {
  if (!has_norm_kernel(sums, weights)) return plain::norm(sums, weights);
  return launch_norm(sums.contiguous(), {}, {}, weights);
}

AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  if (!has_norm_kernel(sums, weights) || gradient.scalar_type() != sums.scalar_type()) {
    return plain::add_norm_backward(gradient, sums, weights);
  }
  const int64_t columns = sums.size(-1);
  const int64_t rows = sums.numel() / columns;
  const bool aligned = is_aligned(columns, {gradient, sums, weights.gamma});
  const Division division(sums, aligned);
  const RowParts parts_of(rows, division.rows > 1 ? RowParts::kParts : RowParts::kNormParts);
  const Tensor parts = at::empty({3, parts_of.count, columns}, sums.options().dtype(at::kFloat));
  Launch launch(sums);
  const AddNormBackwardArguments arguments = {
      .gradient = launch.changes(gradient),
      .sums = weights.dropout ? launch.changes(sums) : const_cast<void*>(launch.reads(sums)),
      .gamma = launch.reads<float>(weights.gamma),
      .parts = launch.writes<float>(parts),
      .rows = rows,
      .rows_at_once = parts_of.rows_at_once,
      .columns = columns,
      .epsilon = static_cast<float>(weights.epsilon),
      .is_aligned = aligned,
      .dropout = dropout_arguments(weights.dropout, sums.size(-2), weights.layout, launch)};
  launch.run<kernel::add_norm_backward>(value_type_of(sums), division.variant,
                                        {.x = parts_of.count, .threads = division.threads},
                                        arguments);
  return {.product = weights.dropout ? sums : gradient,
          .gamma = parts[0],
          .beta = parts[1],
          .bias = parts[2]};
}

}  // namespace finetune::kernels::cuda
