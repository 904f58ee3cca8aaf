// SPDX-License-Identifier: MIT
#include "kernels/bias_gelu_cpu.h"

#include "kernels/vector_block.h"

namespace finetune::kernels {
namespace {

template <typename Storage>
FT_INLINE void forward(const BiasGeluRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    for (int64_t c = 0; c < rows.columns; c += kBlock) {
      const int64_t count = rows.columns - c;
      const int64_t at = r * rows.columns + c;
      Block x;
      Block bias;
      load_block(rows.input + at, count, 0.0F, x);
      load_block(rows.bias + c, count, 0.0F, bias);
      for (int i = 0; i < kBlock; ++i) {
        const float value = x[i] + bias[i];
        x[i] = value * normal_distribution(value).integral;
      }
      store_block(x, count, rows.output + at);
    }
  }
}

template <typename Storage>
FT_INLINE void backward(const BiasGeluBackwardRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    for (int64_t c = 0; c < rows.columns; c += kBlock) {
      const int64_t count = rows.columns - c;
      const int64_t at = r * rows.columns + c;
      Block x;
      Block bias;
      Block gradient;
      load_block(rows.input + at, count, 0.0F, x);
      load_block(rows.bias + c, count, 0.0F, bias);
      load_block(rows.gradient + at, count, 0.0F, gradient);
      for (int i = 0; i < kBlock; ++i) {
        const float value = x[i] + bias[i];
        const Normal normal = normal_distribution(value);
        gradient[i] *= normal.integral + value * normal.density;
      }
      store_block(gradient, count, rows.gradient + at);
      add_block(gradient, count, rows.bias_sums + c);
    }
  }
}

}  // namespace

FT_CLONES void bias_gelu_rows(const BiasGeluRows<float>& rows) { forward(rows); }
FT_CLONES void bias_gelu_rows(const BiasGeluRows<BFloat16Bits>& rows) { forward(rows); }
FT_CLONES void bias_gelu_rows(const BiasGeluRows<HalfBits>& rows) { forward(rows); }

FT_CLONES void bias_gelu_backward_rows(const BiasGeluBackwardRows<float>& rows) { backward(rows); }
FT_CLONES void bias_gelu_backward_rows(const BiasGeluBackwardRows<BFloat16Bits>& rows) {
  backward(rows);
}
FT_CLONES void bias_gelu_backward_rows(const BiasGeluBackwardRows<HalfBits>& rows) {
  backward(rows);
}

}  // namespace finetune::kernels
