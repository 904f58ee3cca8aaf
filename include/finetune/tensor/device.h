// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace finetune {

// The one place that picks the device: torch's accelerator (CUDA, ...) where one is there and
// `use_cpu` is false, else the CPU.
[[nodiscard]] c10::Device pick_device(bool use_cpu);

// "CPU, 2 threads, AVX2", "Tesla T4 (cuda:0 of 1, 14.7 GiB)".
[[nodiscard]] std::string describe_device(const c10::Device& device);
// "2.13.0+cpu"
[[nodiscard]] std::string torch_version();
// Instruction set that torch's kernels use here ("AVX512"): part of the environment that equal
// bits depend on.
[[nodiscard]] std::string cpu_capability();

[[nodiscard]] int num_threads();
void set_num_threads(int threads);
void synchronize(const c10::Device& device);

// Peak memory since the process started. On the CPU: resident memory, less the mapped pages of
// files beyond kMappedCode that are resident now (memory_status.h). On a device: allocated memory.
[[nodiscard]] uint64_t peak_memory_bytes(const c10::Device& device);

// Host memory of a training process has two phases. While a model is built, large blocks are mapped
// and unmapped, so that long-lived memory is separate from what every step allocates and frees.
void return_freed_memory();
// From the first step on, blocks are kept instead of being unmapped and faulted in again each time.
void keep_freed_memory();

// Returns unused memory to the system, or to the device, so that a retry after OOM can allocate
// blocks of other sizes.
void release_unused_memory(const c10::Device& device);

// Gives back the memory in which code lies that ran at the start and hardly will again, such as the
// registration of libtorch's operators: tens of MiB. What is needed all the same is read again from
// the file. Does nothing where the system cannot say what is mapped.
void release_startup_code();

}  // namespace finetune
