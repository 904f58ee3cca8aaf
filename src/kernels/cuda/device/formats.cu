// SPDX-License-Identifier: MIT
// Converts the tensors of a list between float32 and the formats of weights and gradients. A block
// converts kListedValues elements, a thread four at a time.
#include "kernels/cuda/device/lists.h"
#include "kernels/cuda/device/rounding.h"

namespace finetune::kernels::cuda {

constexpr int kRound = 0;
constexpr int kAdd = 1;
constexpr int kSplitValues = 2;
constexpr int kJoinValues = 3;

// Converts elements [first, first + 4), as far as the tensor has them.
template <int kVariant>
__device__ inline void convert_four(const ListedConversion& a, i64 first) {
  u32 numbers[4];
  if (kVariant == kRound || kVariant == kAdd) {
    rounding_numbers(a.first_element + static_cast<u64>(first), a.key, numbers);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const i64 position = first + i;
    if (position < 0 || position >= a.count) continue;
    if (kVariant == kRound) a.narrow[position] = round_with(a.values[position], numbers[i]);
    if (kVariant == kAdd) {
      const float sum = widen(bfloat16{a.narrow[position]}) + a.values[position];
      a.narrow[position] = round_with(sum, numbers[i]);
    }
    if (kVariant == kSplitValues) {
      const SplitValue value = split_value(a.values[position]);
      a.narrow[position] = value.weight;
      a.correction[position] = value.correction;
    }
    if (kVariant == kJoinValues) {
      a.values[position] = join_value(a.narrow[position], a.correction[position]);
    }
  }
}

// Groups of four elements start at multiples of four of the random numbers, so the first group may
// begin before the first element.
template <class T, int kVariant>
__device__ void formats(const FormatsArguments& list) {
  const ListedConversion& a = entry_of(list.conversions, list.count, blockIdx.x);
  const auto skipped = static_cast<i64>(a.first_element % 4);
  const i64 block = (static_cast<i64>(blockIdx.x) - a.first_block) * kListedValues;
#pragma unroll
  for (int part = 0; part < kListedValues; part += 4 * kThreads) {
    const i64 first = block + part + 4 * static_cast<i64>(threadIdx.x) - skipped;
    if (first < a.count) convert_four<kVariant>(a, first);
  }
}

// Gathers and joins rows; one block per row.
template <class T, int kVariant>
__device__ void joined_rows(const JoinedRowsArguments& a) {
  const i64 source = a.indices[blockIdx.x] * a.columns;
  float* const values = a.values + static_cast<i64>(blockIdx.x) * a.columns;
  for (i64 c = threadIdx.x; c < a.columns; c += blockDim.x) {
    values[c] = join_value(a.narrow[source + c], a.correction[source + c]);
  }
}

}  // namespace finetune::kernels::cuda
