// SPDX-License-Identifier: MIT
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "finetune/tensor/allocation_faults.h"
#include "finetune/tensor/device.h"
#include "tensor/block_pool.h"

namespace finetune {
namespace {

constexpr uintptr_t kHostAlignment = 64;  // c10::gAlignment: cache line and AVX512 register
constexpr int kTopPad = 128 << 10;        // malloc's own
constexpr size_t kPoolAddresses = size_t{1} << 42;

// True from the first step on.
std::atomic<bool> uses_pool = false;

BlockPool& pool() {
  // Never destroyed: tensors may outlive static objects.
  static BlockPool* const blocks = new BlockPool(kPoolAddresses);
  return *blocks;
}

std::atomic<int64_t> largest_allowed = std::numeric_limits<int64_t>::max();
std::atomic<int64_t> allocations_to_fault = 0;

// Injects allocation failures for tests; costs two relaxed reads otherwise.
void refuse_for_test(size_t bytes) {
  if (bytes > static_cast<size_t>(largest_allowed.load(std::memory_order_relaxed))) {
    throw std::bad_alloc();
  }
  if (allocations_to_fault.load(std::memory_order_relaxed) > 0 &&
      allocations_to_fault.fetch_sub(1) == 1) {
    throw std::bad_alloc();
  }
}

// For tests (FINETUNE_TEST_POISON_MEMORY): all memory is NaN when it is allocated and when it is
// freed, so that what reads a tensor that was consumed, or never written, fails loudly.
std::atomic<bool> poisons = false;
constexpr int kPoison = 0xFF;  // every byte: NaN in each floating type

// libtorch's allocator uses posix_memalign, which before glibc 2.38 searches for more than it needs
// and frees the rest: the hole of a tensor is then too small for the next one of its size, and
// memory fragments. malloc reuses holes of equal size, and large blocks come from a separate pool.
class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::kCPU);
    if (bytes == 0) return {nullptr, device};
    refuse_for_test(bytes);
    if (bytes >= BlockMap::kSmallest && uses_pool && !poisons) {
      if (void* pooled = pool().take(bytes)) return {pooled, pooled, &release, device};
    }
    void* block = bytes > SIZE_MAX - kHostAlignment ? nullptr : std::malloc(bytes + kHostAlignment);
    if (block == nullptr) throw std::bad_alloc();
    // malloc's blocks begin at multiples of 16, so there is room for a pointer before the data.
    const auto address = reinterpret_cast<uintptr_t>(block);
    void* data = static_cast<char*>(block) + (kHostAlignment - address % kHostAlignment);
    block_of(data) = block;
    if (poisons) std::memset(data, kPoison, bytes);
    return {data, data, &release, device};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

 private:
  static void*& block_of(void* data) { return static_cast<void**>(data)[-1]; }
  static void release(void* data) {
    if (data == nullptr || pool().give_back(data)) return;
    void* block = block_of(data);
    if (poisons) std::memset(block, kPoison, ::malloc_usable_size(block));
    std::free(block);
  }
};

}  // namespace

void return_freed_memory() {
  static HostAllocator allocator;
  c10::SetCPUAllocator(&allocator, 1);
  if (const char* const limit = std::getenv("FINETUNE_TEST_ALLOCATION_LIMIT")) {
    set_allocation_faults({.largest = std::max(std::atoll(limit), 1LL)});
  }
  const char* const poison = std::getenv("FINETUNE_TEST_POISON_MEMORY");
  poisons = poison != nullptr && *poison == '1';
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

void keep_freed_memory() {
  ::malloc_trim(0);
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, 64 << 20);
  uses_pool = true;
}

KeptMemory::KeptMemory() : was_kept_(uses_pool) { keep_freed_memory(); }

KeptMemory::~KeptMemory() {
  if (was_kept_) return;
  uses_pool = false;
  pool().release_holes();
  ::mallopt(M_TOP_PAD, kTopPad);
  return_freed_memory();
  ::malloc_trim(0);
}

void release_unused_memory(const c10::Device& device) {
  if (uses_pool) pool().release_holes();
  ::malloc_trim(0);
  if (features_of(device).statistics) at::accelerator::emptyCache();
}

void set_allocation_faults(const AllocationFaults& faults) {
  largest_allowed = faults.largest;
  allocations_to_fault = faults.failing;
}

bool allocation_fault_is_ahead() { return allocations_to_fault > 0; }

}  // namespace finetune
