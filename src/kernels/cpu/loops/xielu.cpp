// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/xielu.h"

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

constexpr float kLine = 0.5F;
constexpr float kLargest = -1e-6F;      // of the exponential's argument
constexpr int64_t kValuesOfSum = 4096;  // that are added in float32

// exp(m) - 1 - x with m = min(x, kLargest), which cancels near zero: the remainder is exact there.
template <int W>
FT_INLINE typename Vector<W>::Float power_of(typename Vector<W>::Float x) {
  using Float = typename Vector<W>::Float;
  const Float m = x < kLargest ? x : Float{} + kLargest;
  return remainder_of_exponential<W>(m) + (m - x);
}

template <int W, typename Storage>
FT_INLINE void forward(const XieluValues<Storage>& v) {
  const float a = v.factors.of_squares, b = v.factors.of_powers;
  for (int64_t i = v.first; i < v.last; i += kLanes) {
    const int64_t count = v.last - i;
    const Lanes<W> y = map(load<W>(v.x + i, count), [a, b](auto x) FT_INLINE_LAMBDA {
      return (x > 0.0F ? x * x * a : power_of<W>(x) * b) + x * kLine;
    });
    store(y, count, v.output + i);
  }
}

template <int W, typename Storage>
FT_INLINE void backward(const XieluBackward<Storage>& v) {
  using Float = typename Vector<W>::Float;
  const float a = v.factors.of_squares, b = v.factors.of_powers;
  for (int64_t begin = v.first; begin < v.last; begin += kValuesOfSum) {
    const int64_t end = begin + kValuesOfSum < v.last ? begin + kValuesOfSum : v.last;
    Lanes<W> squares(0.0F), powers(0.0F);
    for (int64_t i = begin; i < end; i += kLanes) {
      const int64_t count = end - i;
      const Lanes<W> x = load<W>(v.x + i, count);
      const Lanes<W> dy = load<W>(v.gradient + i, count);
      const Lanes<W> slope = map(x, [a, b](auto part) FT_INLINE_LAMBDA {
        const Float of_power =
            part < kLargest ? remainder_of_exponential<W>(part) + part : Float{} - 1.0F;
        return (part > 0.0F ? part * (2.0F * a) : of_power * b) + kLine;
      });
      squares = squares + dy * map(x, [](auto part) FT_INLINE_LAMBDA {
                            return part > 0.0F ? part * part : Float{};
                          });
      powers = powers + dy * map(x, [](auto part) FT_INLINE_LAMBDA {
                          return part > 0.0F ? Float{} : power_of<W>(part);
                        });
      store(dy * slope, count, v.gradient + i);
    }
    v.sums[0] += static_cast<double>(sum(squares));
    v.sums[1] += static_cast<double>(sum(powers));
  }
}

}  // namespace

FT_VECTOR_KERNEL(xielu_values, XieluValues<float>, forward)
FT_VECTOR_KERNEL(xielu_values, XieluValues<BFloat16Bits>, forward)
FT_VECTOR_KERNEL(xielu_values, XieluValues<HalfBits>, forward)

FT_VECTOR_KERNEL(xielu_backward_values, XieluBackward<float>, backward)
FT_VECTOR_KERNEL(xielu_backward_values, XieluBackward<BFloat16Bits>, backward)
FT_VECTOR_KERNEL(xielu_backward_values, XieluBackward<HalfBits>, backward)

}  // namespace finetune::kernels
