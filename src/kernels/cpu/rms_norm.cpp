// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {

Tensor rms_norm(const Tensor& x, const RmsNorm& norm, at::ScalarType type) {
  const int64_t columns = x.size(-1);
  const Tensor output = at::empty_like(x);
  with_storage(x.scalar_type(), [&]<typename Storage>(Storage*) {
    const RmsNormRows<Storage> all = {.input = static_cast<const Storage*>(x.const_data_ptr()),
                                      .output = static_cast<Storage*>(output.mutable_data_ptr()),
                                      .weight = norm.weight.const_data_ptr<float>(),
                                      .epsilon = static_cast<float>(norm.epsilon),
                                      .adds_one = norm.adds_one,
                                      .first_row = 0,
                                      .last_row = 0,
                                      .columns = columns};
    at::parallel_for(0, x.numel() / columns, row_grain(columns), [&](int64_t begin, int64_t end) {
      RmsNormRows<Storage> rows = all;
      rows.first_row = begin;
      rows.last_row = end;
      rms_norm_rows(rows);
    });
  });
  return output.to(type);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const RmsNorm& norm,
                        at::ScalarType type) {
  return norm_of_sum(x, branch, norm, type, rms_norm);
}

RmsNormGradients rms_norm_backward(const Tensor& of_output, const Tensor& x, const RmsNorm& norm,
                                   const Tensor& sum, bool /*rounds*/) {
  const Tensor gradient = of_output.to(x.scalar_type());
  const int64_t columns = x.size(-1);
  const RowParts parts(x.numel() / columns);
  const Tensor sums = at::zeros({parts.count(), columns}, norm.weight.options());
  with_storage(x.scalar_type(), [&]<typename Storage>(Storage*) {
    const RmsNormBackwardRows<Storage> all = {
        .input = static_cast<const Storage*>(x.const_data_ptr()),
        .gradient = static_cast<Storage*>(gradient.mutable_data_ptr()),
        .weight = norm.weight.const_data_ptr<float>(),
        .weight_sums = sums.mutable_data_ptr<float>(),
        .epsilon = static_cast<float>(norm.epsilon),
        .adds_one = norm.adds_one,
        .first_row = 0,
        .last_row = 0,
        .columns = columns};
    at::parallel_for(0, parts.count(), part_grain(parts, columns), [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        RmsNormBackwardRows<Storage> rows = all;
        rows.first_row = parts.begin(part);
        rows.last_row = parts.end(part);
        rows.weight_sums += part * columns;
        rms_norm_backward_rows(rows);
      }
    });
  });
  return {.input = sum.defined() ? sum.add_(gradient) : gradient, .weight = sums.sum(0)};
}

}  // namespace finetune::kernels::cpu
