// SPDX-License-Identifier: MIT
// With PRETEND_ACCELERATOR_KERNELS=cuda the device runs the sources of src/kernels/cuda/device/ on
// the CPU, with a fiber for every thread. The binary finds finetune_cuda_runner() by name.
#include <cstdlib>
#include <string_view>

#include "counts.h"
#include "cuda_on_cpu/kernels.h"
#include "memory.h"

namespace pretend {
namespace {

using finetune::kernels::cuda::KernelLaunch;
using finetune::kernels::cuda::Runner;

void* address(const void* pointer) { return DeviceMemory::instance().accessible(pointer); }

void launch(const KernelLaunch& one) {
  cuda_on_cpu::run_on_cpu(one);
  Counts::instance().add_kernel(std::string("cuda::") + one.kernel, one.bytes_read,
                                one.bytes_written);
}

}  // namespace
}  // namespace pretend

extern "C" __attribute__((visibility("default"))) const finetune::kernels::cuda::Runner*
finetune_cuda_runner() {
  static const finetune::kernels::cuda::Runner runner = {.address = pretend::address,
                                                         .launch = pretend::launch};
  const char* const wish = std::getenv("PRETEND_ACCELERATOR_KERNELS");
  return wish != nullptr && std::string_view(wish) == "cuda" ? &runner : nullptr;
}
