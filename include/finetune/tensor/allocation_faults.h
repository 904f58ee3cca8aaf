// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>

// A lack of host memory at will, for tests: a tensor is refused as if malloc had nothing left.
namespace finetune {

struct AllocationFaults {
  int64_t largest = std::numeric_limits<int64_t>::max();  // bytes; larger tensors are refused
  int64_t failing = 0;  // the n-th allocation from now on fails; 0: none
};

// Of effect behind return_freed_memory(), which sets `largest` from the environment variable
// FINETUNE_TEST_ALLOCATION_LIMIT where that is there.
void set_allocation_faults(const AllocationFaults& faults);

// Whether the tensor that `failing` names is still to come.
[[nodiscard]] bool allocation_fault_is_ahead();

}  // namespace finetune
