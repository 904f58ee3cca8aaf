// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

// Values of a listed tensor that one block of threads processes.
constexpr int kListedValues = 2048;

// Returns the last entry whose first_block is at most `block`: the tensor that the block processes.
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
