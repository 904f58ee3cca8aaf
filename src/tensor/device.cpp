// SPDX-License-Identifier: MIT
#include "finetune/tensor/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <fstream>
#include <sstream>

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

void release_startup_code() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream fields(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::string permissions;
    if (!(fields >> std::hex >> begin >> dash >> end >> permissions)) continue;
    // Code of a file that nobody can have written to: dropping it loses nothing.
    if (permissions != "r-xp" || line.find('/') == std::string::npos) continue;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
}

}  // namespace finetune
