// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

// What executes a kernel of device/: the CUDA driver, or, in tests, fibers on the CPU. Torch-free,
// and plain data: a preloaded library may provide one.
namespace finetune::kernels::cuda {

// The types of values that kernels are compiled for.
enum class ValueType { kFloat32, kBFloat16, kFloat16 };

struct KernelLaunch {
  const char* kernel = nullptr;  // as in device/kernels.def
  ValueType type = ValueType::kFloat32;
  int variant = 0;
  int64_t blocks_x = 1;
  int64_t blocks_y = 1;
  int threads = 256;
  const void* arguments = nullptr;  // the kernel's structure of device/arguments.h
  int device = 0;
  int64_t bytes_read = 0;  // of tensors: what a pretend accelerator counts
  int64_t bytes_written = 0;
};

struct Runner {
  // Where kernels find what a tensor of the device has at this address.
  void* (*address)(const void* pointer);
  // Starts it on the device's current stream. Throws where that is refused.
  void (*launch)(const KernelLaunch& launch);
  // Whether tensors are in the host's memory, as in tests.
  bool is_host = false;
};

// The driver with this process's NVRTC; null where a GPU's kernels cannot be compiled, and then
// one line of the log says why and what it costs. Decided at the first call.
[[nodiscard]] const Runner* driver_runner();
// That of the library that pretends to be an accelerator (it exports finetune_cuda_runner()), or
// null.
[[nodiscard]] const Runner* preloaded_runner();

// Who launches. Set by kernels_for() for a device and by tests.
void set_runner(const Runner* runner);
[[nodiscard]] const Runner& current_runner();

}  // namespace finetune::kernels::cuda
