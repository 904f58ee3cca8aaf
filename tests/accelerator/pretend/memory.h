// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace pretend {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;

// Returns the value of an environment variable, or `fallback` if it is not set.
size_t environment_value(const char* name, size_t fallback);

// The device's memory: one file, mapped twice. Tensors have addresses in a mapping without access
// rights, so a host that reads or writes them crashes; kernels use the other mapping. New and freed
// memory is filled with bytes 0xFF, which are NaN in every floating-point type. Thread-safe.
class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // Throws c10::OutOfMemoryError if the limit (PRETEND_ACCELERATOR_BYTES) is exceeded.
  void* take(size_t bytes);
  void give_back(void* pointer);

  [[nodiscard]] bool contains(const void* pointer) const;
  // Returns the first address of the allocated block that contains this one, or null.
  const void* block_of(const void* pointer);
  // Converts a tensor's address to the address that kernels use.
  [[nodiscard]] char* accessible(const void* pointer) const;
  [[nodiscard]] bool is_accessible(const void* pointer) const;

  [[nodiscard]] size_t limit() const { return limit_; }
  c10::CachingDeviceAllocator::DeviceStats stats();
  void reset_peak();

 private:
  DeviceMemory();
  void poison(size_t first, size_t bytes) const;
  void add_hole(size_t first, size_t bytes);

  size_t limit_;
  char* protected_ = nullptr;   // addresses of tensors
  char* accessible_ = nullptr;  // addresses for kernels
  size_t used_before_ = 0;      // memory after this offset was never allocated
  std::mutex mutex_;
  std::map<size_t, size_t> holes_;   // offset to bytes
  std::map<size_t, size_t> blocks_;  // offset to bytes
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

c10::DeviceAllocator& device_allocator();

// Pinned memory is ordinary memory whose addresses are recorded.
at::HostAllocator& pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace pretend
