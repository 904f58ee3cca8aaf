// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/rms_norm.h"

#include <cmath>

namespace finetune::kernels {
namespace {

// 1 / sqrt(mean(x^2) + epsilon) of a row.
template <int W, typename Rows>
FT_INLINE float inverse_rms(const Rows& rows, int64_t r) {
  Lanes<W> squares(0.0F);
  for (int64_t c = 0; c < rows.columns; c += kLanes) {
    const Lanes<W> x = load<W>(rows.input + r * rows.columns + c, rows.columns - c);
    squares = squares + x * x;
  }
  return 1.0F / std::sqrt(sum(squares) / static_cast<float>(rows.columns) + rows.epsilon);
}

// What a unit row is multiplied with, from column c on.
template <int W, typename Rows>
FT_INLINE Lanes<W> load_factor(const Rows& rows, int64_t c) {
  const Lanes<W> weight = load<W>(rows.weight + c, rows.columns - c);
  return rows.adds_one ? weight + 1.0F : weight;
}

template <int W, typename Storage>
FT_INLINE void rms_norm_forward(const RmsNormRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float inverse = inverse_rms<W>(rows, r);
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> unit = load<W>(rows.input + position, count) * inverse;
      store(unit * load_factor<W>(rows, c), count, rows.output + position);
    }
  }
}

// With u = x / rms and g = dy f: df += dy u, dx = (g - u mean(g u)) / rms.
template <int W, typename Storage>
FT_INLINE void rms_norm_backward(const RmsNormBackwardRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float inverse = inverse_rms<W>(rows, r);
    Lanes<W> products(0.0F);
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> unit = load<W>(rows.input + position, count) * inverse;
      const Lanes<W> of_factor = load<W>(rows.gradient + position, count) * unit;
      products = products + of_factor * load_factor<W>(rows, c);
      store(load<W>(rows.weight_sums + c, count) + of_factor, count, rows.weight_sums + c);
    }
    const float along = sum(products) / static_cast<float>(rows.columns);
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const int64_t count = rows.columns - c;
      const int64_t position = r * rows.columns + c;
      const Lanes<W> unit = load<W>(rows.input + position, count) * inverse;
      const Lanes<W> g = load<W>(rows.gradient + position, count) * load_factor<W>(rows, c);
      store((g - unit * along) * inverse, count, rows.gradient + position);
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(rms_norm_rows, RmsNormRows<float>, rms_norm_forward)
FT_VECTOR_KERNEL(rms_norm_rows, RmsNormRows<BFloat16Bits>, rms_norm_forward)
FT_VECTOR_KERNEL(rms_norm_rows, RmsNormRows<HalfBits>, rms_norm_forward)

FT_VECTOR_KERNEL(rms_norm_backward_rows, RmsNormBackwardRows<float>, rms_norm_backward)
FT_VECTOR_KERNEL(rms_norm_backward_rows, RmsNormBackwardRows<BFloat16Bits>, rms_norm_backward)
FT_VECTOR_KERNEL(rms_norm_backward_rows, RmsNormBackwardRows<HalfBits>, rms_norm_backward)

}  // namespace finetune::kernels
