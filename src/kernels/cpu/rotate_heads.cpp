// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/rotate_heads.h"

#include <ATen/Parallel.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"

namespace finetune::kernels::cpu {
namespace {

void rotate(const Tensor& x, const HeadRotation& rotation) {
  const int64_t columns = x.size(-1);
  with_storage(x.scalar_type(), [&]<typename Storage>(Storage*) {
    const RotatedRows<Storage> all = {.values = static_cast<Storage*>(x.mutable_data_ptr()),
                                      .cos = rotation.cos.const_data_ptr<float>(),
                                      .sin = rotation.sin.const_data_ptr<float>(),
                                      .heads = columns / rotation.head_size,
                                      .size = rotation.head_size,
                                      .half = rotation.cos.size(-1),
                                      .tokens = rotation.cos.size(0),
                                      .back = rotation.back,
                                      .first_row = 0,
                                      .last_row = 0};
    at::parallel_for(0, x.numel() / columns, row_grain(columns), [&](int64_t begin, int64_t end) {
      RotatedRows<Storage> rows = all;
      rows.first_row = begin;
      rows.last_row = end;
      rotate_rows(rows);
    });
  });
}

}  // namespace

std::vector<Tensor> rotate_heads(const std::vector<Tensor>& x, const HeadRotation& rotation) {
  for (const Tensor& heads : x) rotate(heads, rotation);
  return x;
}

}  // namespace finetune::kernels::cpu
