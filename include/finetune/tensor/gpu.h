// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>

// Queries of the GPU's driver and of torch beyond the common accelerator interface. No CUDA header
// is needed: functions are looked up in the libraries that torch has loaded.
namespace finetune {

struct GpuProperties {
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
};

// Returns nullopt on the CPU, and if no CUDA driver knows the device.
[[nodiscard]] std::optional<GpuProperties> gpu_properties(const c10::Device& device);

// Returns "compute capability 7.5, 40 multiprocessors, CUDA 13.0, NVRTC 13.0": the properties,
// besides the device's name, on which exact bits depend (cuBLAS guarantees equal bits for one
// architecture and number of multiprocessors). Empty if they are unknown.
[[nodiscard]] std::string gpu_environment(const c10::Device& device);

// Whether this machine has an NVIDIA GPU or its driver, whatever torch makes of it. `root`: where
// its file system begins, another one in tests.
[[nodiscard]] bool has_nvidia_hardware(const std::string& root = "/");

// Returns the version of NVIDIA's driver, "550.54.15"; empty if it is unknown.
[[nodiscard]] std::string nvidia_driver_version(const std::string& root = "/");

// Sets arithmetic options of a device; no effect on the CPU. Call it before the first operation on
// the device.
//   tf32           multiply float32 matrices in TensorFloat-32
//   deterministic  torch rejects operations whose results differ between runs, and cuBLAS gets a
//                  workspace of fixed size (CUBLAS_WORKSPACE_CONFIG, unless the user set it)
void set_device_arithmetic(const c10::Device& device, bool tf32, bool deterministic);

// Returns the bytes that torch allocates for cuBLAS's workspaces: one for each thread that
// multiplies (the main one and autograd's). 0 if no CUDA driver knows the device.
[[nodiscard]] int64_t product_workspace_bytes(const c10::Device& device);

// Makes what a device's libraries create at the first use (cuBLAS's handle and workspace of this
// thread and of autograd's) while memory is free; no effect on the CPU.
void warm_up(const c10::Device& device);

// Returns "at most 5.10 GiB allocated and 5.90 GiB reserved by this process, 0.40 GiB by the driver
// and other processes, of 8.00 GiB"; empty on the CPU.
[[nodiscard]] std::string describe_device_memory(const c10::Device& device);

// Returns "GPU" or "TPU" if an exception reports an error after which the process can no longer use
// it, and nothing can be saved from its memory: of CUDA an illegal address, an uncorrectable memory
// error, a GPU that fell off the bus; of XLA a program that failed while it ran. Empty for others,
// such as a kernel's failed assertion or a program that cannot be compiled, which would fail again
// after a restart.
[[nodiscard]] std::string_view lost_device(const std::exception& error);

}  // namespace finetune
