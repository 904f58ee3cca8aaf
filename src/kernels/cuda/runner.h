// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

// Executes a kernel of device/: by the CUDA driver or, in tests, by fibers on the CPU. Torch-free
// and plain data, because a preloaded library may provide one.
namespace finetune::kernels::cuda {

// The value types that kernels are compiled for.
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
  int64_t bytes_read = 0;  // of tensors; a pretend accelerator counts them
  int64_t bytes_written = 0;
};

struct Runner {
  // Converts the address of a tensor's memory to the address that kernels use.
  void* (*address)(const void* pointer);
  // Starts the kernel on the device's current stream. Throws if the driver refuses it.
  void (*launch)(const KernelLaunch& launch);
  // Whether tensors are in the host's memory, as in tests.
  bool is_host = false;
};

// Returns the driver with this process's NVRTC. Null if kernels cannot be compiled for a GPU; then
// one line of the log gives the reason and the cost. Decided at the first call.
[[nodiscard]] const Runner* driver_runner();
// Returns what compiles for which GPU: "NVRTC 13.0, sm_90". Requires driver_runner() != nullptr.
[[nodiscard]] const std::string& driver_description();
// Returns the runner of a preloaded library that pretends to be an accelerator, or null. The
// library exports finetune_cuda_runner(), which gets driver_runner to run kernels by pretend CUDA
// libraries.
[[nodiscard]] const Runner* preloaded_runner();

// Sets the runner that launches kernels. Called by kernels_for() for a device and by tests.
void set_runner(const Runner* runner);
[[nodiscard]] const Runner& current_runner();

}  // namespace finetune::kernels::cuda
