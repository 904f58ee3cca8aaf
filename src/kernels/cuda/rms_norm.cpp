// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

constexpr int64_t kRowsOfBlock = kThreads / kWarp;
constexpr int64_t kLongestOfWarp = int64_t{4} * 2 * kWarp;

// How rows are divided among warps or blocks, and which types they have.
struct Division {
  int variant = 0;
  int64_t rows_at_once = 1;  // of a block
  int threads = kThreads;

  Division(int64_t columns, bool is_wide) {
    if (columns <= kLongestOfWarp) {
      variant = variant_for(columns, kWarp);
      rows_at_once = kRowsOfBlock;
    } else {
      threads = threads_for(columns);
      variant = kRmsNormWarpShapes + variant_for(columns, threads);
    }
    if (is_wide) variant += kRmsNormShapes;
  }
};

// x has the type of y, or is float32 where that is narrow.
bool has_kernel(const Tensor& x, at::ScalarType type, const RmsNorm& norm) {
  return (x.scalar_type() == type || x.scalar_type() == at::kFloat) && x.numel() > 0 &&
         x.size(-1) <= kLongestRmsNorm && norm.weight.scalar_type() == at::kFloat;
}

// Of x, or of x + branch, which is written to `sum`; both may be undefined.
Tensor launch_norm(const Tensor& x, const Tensor& branch, const Tensor& sum, const RmsNorm& norm,
                   at::ScalarType type) {
  const int64_t columns = x.size(-1);
  const int64_t rows = x.numel() / columns;
  const Tensor output = at::empty_like(x, type);
  Launch launch(x);
  const RmsNormArguments arguments = {
      .input = launch.reads(x),
      .branch = launch.reads(branch),
      .sum = launch.writes(sum),
      .weight = launch.reads<float>(norm.weight),
      .output = launch.writes(output),
      .rows = rows,
      .columns = columns,
      .epsilon = static_cast<float>(norm.epsilon),
      .adds_one = norm.adds_one,
      .is_aligned = is_aligned(columns, {x, branch, sum, norm.weight, output})};
  const Division division(columns, x.scalar_type() != type);
  launch.run<kernel::rms_norm>(value_type_of(output), division.variant,
                               {.x = (rows + division.rows_at_once - 1) / division.rows_at_once,
                                .threads = division.threads},
                               arguments);
  return output;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const RmsNorm& norm, at::ScalarType type) {
  if (!has_kernel(x, type, norm)) return plain::rms_norm(x, norm, type);
  return launch_norm(x, {}, {}, norm, type);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const RmsNorm& norm,
                        at::ScalarType type) {
  if (!has_kernel(x, type, norm) || branch.scalar_type() != type) {
    return norm_of_sum(x, branch, norm, type, rms_norm);
  }
  const Tensor sum = at::empty_like(x);
  return {.sum = sum, .normed = launch_norm(x, branch, sum, norm, type)};
}

RmsNormGradients rms_norm_backward(const Tensor& gradient, const Tensor& x, const RmsNorm& norm,
                                   const Tensor& sum, bool rounds) {
  if (!has_kernel(x, gradient.scalar_type(), norm)) {
    return plain::rms_norm_backward(gradient, x, norm, sum, rounds);
  }
  const int64_t columns = x.size(-1);
  const int64_t rows = x.numel() / columns;
  const RowParts parts_of(rows, RowParts::kNormParts);
  const bool is_wide = x.scalar_type() != gradient.scalar_type();
  const Tensor of_input = sum.defined() ? sum : is_wide ? at::empty_like(x) : gradient;
  const Tensor parts = at::empty({parts_of.count, columns}, norm.weight.options());
  Launch launch(x);
  const RmsNormBackwardArguments arguments = {
      .input = launch.reads(x),
      .gradient = launch.reads(gradient),
      .of_input = sum.defined() ? launch.changes(of_input) : launch.writes(of_input),
      .rounded = rounds && is_wide ? launch.writes(gradient) : nullptr,
      .weight = launch.reads<float>(norm.weight),
      .parts = launch.writes<float>(parts),
      .rows = rows,
      .rows_at_once = parts_of.rows_at_once,
      .columns = columns,
      .epsilon = static_cast<float>(norm.epsilon),
      .adds_one = norm.adds_one,
      .adds = sum.defined(),
      .is_aligned = is_aligned(columns, {x, gradient, of_input, norm.weight, parts})};
  const Division division(columns, is_wide);
  launch.run<kernel::rms_norm_backward>(value_type_of(gradient), division.variant,
                                        {.x = parts_of.count, .threads = division.threads},
                                        arguments);
  return {.input = of_input,
          .weight = parts,
          .rounded = arguments.rounded != nullptr ? gradient : Tensor()};
}

}  // namespace finetune::kernels::cuda
