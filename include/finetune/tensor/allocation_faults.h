// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>

// Injection of out-of-memory faults on the host, for tests: an allocation fails as if malloc had
// failed.
namespace finetune {

struct AllocationFaults {
  int64_t largest = std::numeric_limits<int64_t>::max();  // bytes; larger allocations fail
  int64_t failing = 0;  // the n-th allocation from now on fails; 0: none
};

// Takes effect after return_freed_memory(), which sets `largest` from the environment variable
// FINETUNE_TEST_ALLOCATION_LIMIT if it is set.
void set_allocation_faults(const AllocationFaults& faults);

// Whether the failing allocation has not happened yet.
[[nodiscard]] bool allocation_fault_is_ahead();

}  // namespace finetune
