// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/rotate_heads.h"

namespace finetune::kernels {
namespace {

// (a, b) becomes (a cos - b sin, b cos + a sin); turned back, with the signs of sin exchanged.
template <int W, typename Storage>
FT_INLINE void rotate(const RotatedRows<Storage>& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const float* cos = rows.cos + r % rows.tokens * rows.half;
    const float* sin = rows.sin + r % rows.tokens * rows.half;
    for (int64_t h = 0; h < rows.heads; ++h) {
      Storage* first = rows.values + (r * rows.heads + h) * rows.size;
      Storage* second = first + rows.half;
      for (int64_t c = 0; c < rows.half; c += kLanes) {
        const int64_t count = rows.half - c;
        const Lanes<W> a = load<W>(first + c, count);
        const Lanes<W> b = load<W>(second + c, count);
        const Lanes<W> of_cos = load<W>(cos + c, count);
        const Lanes<W> of_sin = load<W>(sin + c, count);
        const Lanes<W> from_b = b * of_sin;
        const Lanes<W> from_a = a * of_sin;
        store(rows.back ? a * of_cos + from_b : a * of_cos - from_b, count, first + c);
        store(rows.back ? b * of_cos - from_a : b * of_cos + from_a, count, second + c);
      }
    }
  }
}

}  // namespace

FT_VECTOR_KERNEL(rotate_rows, RotatedRows<float>, rotate)
FT_VECTOR_KERNEL(rotate_rows, RotatedRows<BFloat16Bits>, rotate)
FT_VECTOR_KERNEL(rotate_rows, RotatedRows<HalfBits>, rotate)

}  // namespace finetune::kernels
