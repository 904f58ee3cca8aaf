// SPDX-License-Identifier: MIT
#include "finetune/tensor/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <climits>

#include "finetune/base/error.h"

namespace finetune {
namespace {

bool has_accelerator() {
  return at::getAccelerator().has_value() && at::accelerator::deviceCount() > 0;
}

}  // namespace

c10::Device pick_device(bool use_cpu) {
  if (use_cpu || !has_accelerator()) return c10::Device(c10::kCPU);
  return c10::Device(*at::getAccelerator(), 0);
}

std::string describe_device(const c10::Device& device) {
  if (device.is_cpu()) {
    return "CPU, " + std::to_string(num_threads()) + " threads, " + cpu_capability();
  }
  return device.str() + " of " + std::to_string(at::accelerator::deviceCount());
}

std::string torch_version() { return TORCH_VERSION; }
std::string cpu_capability() { return at::get_cpu_capability(); }

int num_threads() { return at::get_num_threads(); }
void set_num_threads(int threads) { at::set_num_threads(threads); }

void synchronize(const c10::Device& device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
}

uint64_t peak_memory_bytes(const c10::Device& device) {
  if (device.is_cpu()) {
    struct rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  }
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<uint64_t>(stats.allocated_bytes[aggregate].peak);
}

void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, INT_MAX);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace finetune
