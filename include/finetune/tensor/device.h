// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace finetune {

// The one place that picks the device: torch's accelerator (CUDA, ...) where one is there and
// `use_cpu` is false, else the CPU.
[[nodiscard]] c10::Device pick_device(bool use_cpu);

// "CPU, 2 threads, AVX2" or the accelerator's type, count and memory.
[[nodiscard]] std::string describe_device(const c10::Device& device);
// "2.13.0+cpu"
[[nodiscard]] std::string torch_version();
// Instruction set that torch's kernels use here ("AVX512"): part of the environment that equal
// bits depend on.
[[nodiscard]] std::string cpu_capability();

[[nodiscard]] int num_threads();
void set_num_threads(int threads);
void synchronize(const c10::Device& device);

// Peak memory since the process started: resident memory on the CPU, allocated memory on a device.
[[nodiscard]] uint64_t peak_memory_bytes(const c10::Device& device);

// Large blocks of host memory are kept between steps instead of being returned to the system and
// faulted in anew at each step.
void keep_freed_memory();

}  // namespace finetune
