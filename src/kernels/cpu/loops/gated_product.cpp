// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/gated_product.h"

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

// 1 / (1 + exp(-x)), from the exponential of -|x|, which does not overflow.
template <int W, typename Storage>
FT_INLINE void swiglu_forward(const SwiGlu<Storage>& v) {
  for (int64_t i = v.first; i < v.last; i += kLanes) {
    const int64_t count = v.last - i;
    const Lanes<W> gate = load<W>(v.gate + i, count);
    store(gate * sigmoid(gate) * load<W>(v.up + i, count), count, v.output + i);
  }
}

// With s = sigmoid(gate): SiLU'(gate) = s (1 + gate (1 - s)).
template <int W, typename Storage>
FT_INLINE void swiglu_gradients(const SwiGluBackward<Storage>& v) {
  for (int64_t i = v.first; i < v.last; i += kLanes) {
    const int64_t count = v.last - i;
    const Lanes<W> gate = load<W>(v.gate + i, count);
    const Lanes<W> gradient = load<W>(v.gradient + i, count);
    const Lanes<W> s = sigmoid(gate);
    const Lanes<W> slope = s * (gate * (Lanes<W>(1.0F) - s) + 1.0F);
    store(gradient * load<W>(v.up + i, count) * slope, count, v.gate + i);
    store(gradient * (gate * s), count, v.up + i);
  }
}

}  // namespace

FT_VECTOR_KERNEL(swiglu, SwiGlu<float>, swiglu_forward)
FT_VECTOR_KERNEL(swiglu, SwiGlu<BFloat16Bits>, swiglu_forward)
FT_VECTOR_KERNEL(swiglu, SwiGlu<HalfBits>, swiglu_forward)

FT_VECTOR_KERNEL(swiglu_backward, SwiGluBackward<float>, swiglu_gradients)
FT_VECTOR_KERNEL(swiglu_backward, SwiGluBackward<BFloat16Bits>, swiglu_gradients)
FT_VECTOR_KERNEL(swiglu_backward, SwiGluBackward<HalfBits>, swiglu_gradients)

}  // namespace finetune::kernels
