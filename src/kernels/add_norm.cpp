// SPDX-License-Identifier: MIT
#include "kernels/add_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "finetune/base/error.h"
#include "kernels/add_norm_cpu.h"
#include "kernels/dropout_mask.h"
#include "kernels/philox_cpu.h"
#include "kernels/storage.h"

namespace finetune::kernels {
namespace {

size_t scratch_size(int64_t columns) { return static_cast<size_t>(2 * columns + kDropoutNumbers); }

RowPlaces places_of(const AddNorm& weights) {
  if (weights.layout == nullptr) return {};
  return {.sequences = weights.layout->sequences.const_data_ptr<int64_t>(),
          .places = weights.layout->places.const_data_ptr<int64_t>()};
}

// residual undefined: `sums` is s already.
Tensor forward_cpu(const Tensor& sums, const Tensor& bias, const Tensor& residual,
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
        .row_places = places_of(weights),
        .first_row = 0,
        .last_row = 0,
        .columns = columns,
        .scratch = nullptr};
    at::parallel_for(0, sums.numel() / columns, row_grain(columns),
                     [&](int64_t begin, int64_t end) {
                       std::vector<float> scratch(scratch_size(columns));
                       AddNormRows<Storage> part = rows;
                       part.first_row = begin;
                       part.last_row = end;
                       part.scratch = scratch.data();
                       add_norm_rows(part);
                     });
  });
  return output;
}

AddNormGradients backward_cpu(const Tensor& gradient, const Tensor& sums, const AddNorm& weights) {
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
        .row_places = places_of(weights),
        .first_row = 0,
        .last_row = 0,
        .columns = columns,
        .column_sums = partial.mutable_data_ptr<float>(),
        .scratch = nullptr};
    at::parallel_for(0, parts.count(), 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(scratch_size(columns));
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

}  // namespace

Tensor add_norm_reference(const Tensor& product, const Tensor& bias, const Tensor& residual,
                          const AddNorm& weights) {
  const at::ScalarType type = compute_type(product);
  Tensor dropped = product.to(type) + bias;
  if (weights.dropout) dropped = dropped * dropout_mask(dropped, *weights.dropout, weights.layout);
  product.copy_(residual.to(type) + dropped);
  return norm_reference(product, weights);
}

Tensor norm_reference(const Tensor& sums, const AddNorm& weights) {
  return at::layer_norm(sums.to(compute_type(sums)), {sums.size(-1)}, weights.gamma, weights.beta,
                        weights.epsilon)
      .to(sums.scalar_type());
}

AddNormGradients add_norm_backward_reference(const Tensor& gradient, const Tensor& sums,
                                             const AddNorm& weights) {
  const at::ScalarType type = compute_type(sums);
  const Tensor dy = gradient.to(type);
  const Tensor s = sums.to(type);
  const Tensor centred = s - s.mean(-1, true);
  const Tensor inverse_deviation = at::rsqrt((centred * centred).mean(-1, true) + weights.epsilon);
  const Tensor normalised = centred * inverse_deviation;
  const Tensor scaled = dy * weights.gamma;
  const Tensor ds = inverse_deviation * (scaled - scaled.mean(-1, true) -
                                         normalised * (scaled * normalised).mean(-1, true));
  AddNormGradients gradients = {.product = gradient,
                                .gamma = (dy * normalised).flatten(0, -2).sum(0),
                                .beta = dy.flatten(0, -2).sum(0),
                                .bias = ds.flatten(0, -2).sum(0)};
  gradient.copy_(ds);
  if (weights.dropout) {
    const Tensor dropped = ds * dropout_mask(ds, *weights.dropout, weights.layout);
    gradients.bias = dropped.flatten(0, -2).sum(0);
    sums.copy_(dropped);
    gradients.product = sums;
  }
  return gradients;
}

Tensor add_norm(const Tensor& product, const Tensor& bias, const Tensor& residual,
                const AddNorm& weights) {
  FT_CHECK(product.is_contiguous() && residual.is_contiguous(), "rows are contiguous");
  if (!has_row_kernel(product)) return add_norm_reference(product, bias, residual, weights);
  return forward_cpu(product, bias, residual, weights);
}

Tensor norm(const Tensor& sums, const AddNorm& weights) {
  if (!has_row_kernel(sums)) return norm_reference(sums, weights);
  return forward_cpu(sums, Tensor(), Tensor(), weights);
}

AddNormGradients add_norm_backward(const Tensor& gradient, const Tensor& sums,
                                   const AddNorm& weights) {
  FT_CHECK(gradient.is_contiguous() && sums.is_contiguous(), "rows are contiguous");
  if (!has_row_kernel(sums)) return add_norm_backward_reference(gradient, sums, weights);
  return backward_cpu(gradient, sums, weights);
}

}  // namespace finetune::kernels
