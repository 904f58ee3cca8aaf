// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/gated_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::cpu {
Tensor gated_product(const Tensor& gate, const Tensor& up, Activation f) {
  if (f != silu) return plain::gated_product(gate, up, f);
  const Tensor output = at::empty_like(gate);
  with_storage(gate.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* of_gate = static_cast<const Storage*>(gate.const_data_ptr());
    const auto* of_up = static_cast<const Storage*>(up.const_data_ptr());
    auto* to = static_cast<Storage*>(output.mutable_data_ptr());
    at::parallel_for(0, gate.numel(), kValuesPerThread, [&](int64_t begin, int64_t end) {
      swiglu(
          SwiGlu<Storage>{.gate = of_gate, .up = of_up, .output = to, .first = begin, .last = end});
    });
  });
  return output;
}

void gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                            const Tensor& gradient) {
  if (f != silu) return plain::gated_product_backward(gate, up, f, gradient);
  with_storage(gate.scalar_type(), [&]<typename Storage>(Storage*) {
    auto* of_gate = static_cast<Storage*>(gate.mutable_data_ptr());
    auto* of_up = static_cast<Storage*>(up.mutable_data_ptr());
    const auto* from = static_cast<const Storage*>(gradient.const_data_ptr());
    at::parallel_for(0, gate.numel(), kValuesPerThread, [&](int64_t begin, int64_t end) {
      swiglu_backward(SwiGluBackward<Storage>{
          .gate = of_gate, .up = of_up, .gradient = from, .first = begin, .last = end});
    });
  });
}

}  // namespace finetune::kernels::cpu
