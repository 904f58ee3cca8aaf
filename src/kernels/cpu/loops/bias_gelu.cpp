// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/bias_gelu.h"

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

// GELU(x) = x Phi(x), with x = input + bias and Phi the normal distribution function.
template <int W, typename Storage>
FT_INLINE void forward(const BiasGeluRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> x = load<W>(rows.input + position, count) + load<W>(rows.bias + c, count);
      const Lanes<W> y = map(x, [](auto part) FT_INLINE_LAMBDA {
        return part * normal_distribution<W>(part).integral;
      });
      store(y, count, rows.output + position);
    }
  }
}

// dGELU/dx = Phi(x) + x phi(x), with phi the normal density.
template <int W, typename Storage>
FT_INLINE void backward(const BiasGeluBackwardRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> x = load<W>(rows.input + position, count) + load<W>(rows.bias + c, count);
      const Lanes<W> slope = map(x, [](auto part) FT_INLINE_LAMBDA {
        const Normal<W> normal = normal_distribution<W>(part);
        return normal.integral + part * normal.density;
      });
      const Lanes<W> gradient = load<W>(rows.gradient + position, count) * slope;
      store(gradient, count, rows.gradient + position);
      store(load<W>(rows.bias_sums + c, count) + gradient, count, rows.bias_sums + c);
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(bias_gelu_rows, BiasGeluRows<float>, forward)
FT_VECTOR_KERNEL(bias_gelu_rows, BiasGeluRows<BFloat16Bits>, forward)
FT_VECTOR_KERNEL(bias_gelu_rows, BiasGeluRows<HalfBits>, forward)

FT_VECTOR_KERNEL(bias_gelu_backward_rows, BiasGeluBackwardRows<float>, backward)
FT_VECTOR_KERNEL(bias_gelu_backward_rows, BiasGeluBackwardRows<BFloat16Bits>, backward)
FT_VECTOR_KERNEL(bias_gelu_backward_rows, BiasGeluBackwardRows<HalfBits>, backward)

}  // namespace finetune::kernels
