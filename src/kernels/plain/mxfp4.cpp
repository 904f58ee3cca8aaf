// SPDX-License-Identifier: MIT
#include "finetune/kernels/mxfp4.h"

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                        at::ScalarType type) {
  const Tensor bytes = codes.flatten().narrow(0, first / 2, count / 2).to(at::kInt);
  const Tensor both = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 1);
  const Tensor map = at::tensor(at::ArrayRef<float>(kMxfp4Map), scales.options().dtype(at::kFloat));
  const Tensor powers =
      scales.flatten().narrow(0, first / kMxfp4Block, count / kMxfp4Block).to(at::kInt) - 127;
  const Tensor values = map.index_select(0, both.flatten()).view({-1, kMxfp4Block});
  return at::ldexp(values, powers.unsqueeze(1)).flatten().to(type);
}

}  // namespace finetune::kernels::plain
