// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

// Values of a list's tensor that one block works on.
constexpr int kListedValues = 2048;

// The last entry whose first block does not come after this one.
template <class Entry>
__device__ inline const Entry& entry_of(const Entry* entries, int count, i64 block) {
  int low = 0;
  int high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (entries[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return entries[low];
}

}  // namespace finetune::kernels::cuda
