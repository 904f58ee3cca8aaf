// SPDX-License-Identifier: MIT
// Converts between float32 and the formats of weights and gradients, four elements per thread.
#include "kernels/cuda/device/rounding.h"

namespace finetune::kernels::cuda {

constexpr int kRound = 0;
constexpr int kAdd = 1;
constexpr int kSplitValues = 2;
constexpr int kJoinValues = 3;

template <class T, int kVariant>
__device__ void formats(const FormatsArguments& a) {
  // Groups of four elements start at multiples of four, so the first group may begin before the
  // first element.
  const i64 group = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto skipped = static_cast<i64>(a.first_element % 4);
  u32 numbers[4];
  if (kVariant == kRound || kVariant == kAdd) {
    rounding_numbers(a.first_element - static_cast<u64>(skipped) + 4 * static_cast<u64>(group),
                     a.key, numbers);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const i64 place = 4 * group + i - skipped;
    if (place < 0 || place >= a.count) continue;
    if (kVariant == kRound) a.narrow[place] = round_with(a.values[place], numbers[i]);
    if (kVariant == kAdd) {
      const float sum = widen(bfloat16{a.narrow[place]}) + a.values[place];
      a.narrow[place] = round_with(sum, numbers[i]);
    }
    if (kVariant == kSplitValues) {
      const SplitValue value = split_value(a.values[place]);
      a.narrow[place] = value.weight;
      a.correction[place] = value.correction;
    }
    if (kVariant == kJoinValues) {
      a.values[place] = join_value(a.narrow[place], a.correction[place]);
    }
  }
}

}  // namespace finetune::kernels::cuda
