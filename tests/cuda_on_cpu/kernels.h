// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/runner.h"

// The kernels of src/kernels/cuda/device/ on the CPU (cuda_on_cpu.h).
namespace cuda_on_cpu {

// On tensors in the host's memory.
[[nodiscard]] const finetune::kernels::cuda::Runner& cpu_runner();

void run_on_cpu(const finetune::kernels::cuda::KernelLaunch& launch);

// In which order threads run from now on: 0 ascending, else a seed.
void set_thread_order(unsigned order);

}  // namespace cuda_on_cpu
