// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/runner.h"

// The kernels of src/kernels/cuda/device/ on the CPU (cuda_on_cpu.h).
namespace cuda_on_cpu {

// A runner for tensors in the host's memory.
[[nodiscard]] const finetune::kernels::cuda::Runner& cpu_runner();

void run_on_cpu(const finetune::kernels::cuda::KernelLaunch& launch);

// Sets the order of threads from now on: 0 for ascending, else a seed.
void set_thread_order(unsigned order);

}  // namespace cuda_on_cpu
