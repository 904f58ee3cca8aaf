// SPDX-License-Identifier: MIT
#include "finetune/kernels/nf4.h"

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {

Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first, int64_t count,
                      at::ScalarType type) {
  const int64_t begin = first / kNf4Block;
  const int64_t blocks = nf4_blocks(first + count) - begin;
  const int64_t first_byte = begin * (kNf4Block / 2);
  const Tensor bytes =
      codes.narrow(0, first_byte, nf4_code_bytes(first + count) - first_byte).to(at::kInt);
  const Tensor both = at::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1).flatten();
  const Tensor map = at::tensor(at::ArrayRef<float>(nf4_map()), scales.options());
  const Tensor factors = scales.narrow(0, begin, blocks).repeat_interleave(kNf4Block);
  const Tensor values = map.index_select(0, both) * factors.narrow(0, 0, both.numel());
  return values.narrow(0, first - begin * kNf4Block, count).to(type);
}

}  // namespace finetune::kernels::plain
