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

// The value of an environment variable, or `fallback` if it is not set.
size_t environment_value(const char* name, size_t fallback);

// The device's memory: one file, mapped twice. Tensors have addresses of the mapping without any
// right, so a host that reads or writes them crashes; kernels use the other one. Fresh and freed
// memory holds bytes 0xFF, which are NaN in every floating-point type. Thread-safe.
class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // Throws c10::OutOfMemoryError beyond the limit (PRETEND_ACCELERATOR_BYTES).
  void* take(size_t bytes);
  void give_back(void* pointer);

  [[nodiscard]] bool contains(const void* pointer) const;
  // The kernels' address of a tensor's address.
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
  char* protected_ = nullptr;   // what tensors see
  char* accessible_ = nullptr;  // what kernels see
  size_t used_before_ = 0;      // memory from here on was never taken
  std::mutex mutex_;
  std::map<size_t, size_t> holes_;   // offset to bytes
  std::map<size_t, size_t> blocks_;  // offset to bytes
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

c10::DeviceAllocator& device_allocator();

// Pinned memory is ordinary memory whose addresses are known.
at::HostAllocator& pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace pretend
