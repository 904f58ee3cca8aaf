// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include "kernels/interface/dropout_mask.h"
#include "kernels/plain/operations.h"
#include "kernels/plain/philox.h"

namespace finetune::kernels {

Tensor dropout_mask(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout) {
  const auto options = x.options().dtype(at::kLong);
  const int64_t columns = x.size(-1);
  const int64_t blocks = (columns + 3) / 4;
  const int64_t rows = x.size(-2);
  const int64_t heads = x.dim() == 4 ? x.size(1) : 1;

  const std::vector<int64_t> shape = {x.size(0), heads, rows, blocks};
  const Tensor positions = layout == nullptr ? at::arange(rows, options) : layout->positions;
  const Tensor samples = layout == nullptr
                             ? at::arange(x.size(0), options).view({x.size(0), 1, 1, 1})
                             : layout->sequences.view({1, 1, rows, 1});
  std::array<Tensor, 4> c = {
      at::arange(blocks, options).view({1, 1, 1, blocks}).expand(shape),
      (at::arange(heads, options).view({1, heads, 1, 1}) * 65536 + positions.view({1, 1, rows, 1}))
          .expand(shape),
      (samples + static_cast<int64_t>(numbers.first_position)).expand(shape),
      at::empty_like(at::arange(1, options))
          .fill_(static_cast<int64_t>(numbers.layer_and_site))
          .view({1, 1, 1, 1})
          .expand(shape)};
  c = philox_by_tensor_operations(c, numbers.key[0] | uint64_t{numbers.key[1]} << 32);
  const Tensor words = at::stack({c[0], c[1], c[2], c[3]}, -1).flatten(-2).narrow(-1, 0, columns);
  const Tensor kept = words.ge(static_cast<int64_t>(numbers.threshold()));
  return (kept.to(x.scalar_type()) * static_cast<double>(numbers.scale())).view(x.sizes());
}

namespace plain {

Tensor dropout(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout) {
  return x * dropout_mask(x, numbers, layout);
}

}  // namespace plain
}  // namespace finetune::kernels
