// SPDX-License-Identifier: MIT
#include "finetune/tensor/device.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "finetune/base/error.h"
#include "finetune/base/memory_status.h"

namespace finetune {
namespace {

bool has_accelerator() {
  return at::getAccelerator().has_value() && at::accelerator::deviceCount() > 0;
}

// "NVIDIA A100-SXM4-40GB": from the driver, which libtorch has loaded, because torch's interface
// needs CUDA's headers. Another kind of accelerator has its type.
std::string device_name(const c10::Device& device) {
  using GetDevice = int (*)(int*, int);
  using GetName = int (*)(char*, int, int);
  if (!device.is_cuda()) return c10::DeviceTypeName(device.type(), true);
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return "cuda";
  const auto get_device = reinterpret_cast<GetDevice>(::dlsym(driver, "cuDeviceGet"));
  const auto get_name = reinterpret_cast<GetName>(::dlsym(driver, "cuDeviceGetName"));
  std::array<char, 256> name = {};
  int handle = 0;
  const bool known = get_device != nullptr && get_name != nullptr &&
                     get_device(&handle, device.index()) == 0 &&
                     get_name(name.data(), static_cast<int>(name.size()) - 1, handle) == 0;
  ::dlclose(driver);
  return known ? name.data() : "cuda";
}

}  // namespace

c10::Device pick_device(bool use_cpu) {
  // Before CUDA's allocator reads it: blocks that grow leave no holes between batches of different
  // lengths. What the user sets wins.
  if (std::getenv("PYTORCH_CUDA_ALLOC_CONF") == nullptr) {
    ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  }
  if (use_cpu || !has_accelerator()) return c10::Device(c10::kCPU);
  return c10::Device(*at::getAccelerator(), 0);
}

std::string describe_device(const c10::Device& device) {
  if (device.is_cpu()) {
    return "CPU, " + std::to_string(num_threads()) + " threads, " + cpu_capability();
  }
  const auto [free, total] = at::accelerator::getMemoryInfo(device.index());
  char memory[32];
  std::snprintf(memory, sizeof(memory), "%.1f GiB",
                static_cast<double>(total) / static_cast<double>(1 << 30));
  return device_name(device) + " (" + device.str() + " of " +
         std::to_string(at::accelerator::deviceCount()) + ", " + memory + ")";
}

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
    const int64_t most = int64_t{1024} * usage.ru_maxrss - reclaimable_resident_memory();
    return static_cast<uint64_t>(std::max(most, resident_memory()));
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
