// SPDX-License-Identifier: MIT
// With PRETEND_ACCELERATOR_KERNELS=cuda the device runs the sources of src/kernels/cuda/device/ on
// the CPU, with a fiber for every thread; with "driver" the program loads and launches them through
// the libraries of ../cuda/. The binary finds finetune_cuda_runner() by name.
#include <cstdlib>
#include <string_view>

#include "counts.h"
#include "cuda_on_cpu/kernels.h"
#include "late_copies.h"
#include "memory.h"

namespace pretend {
namespace {

using finetune::kernels::cuda::KernelLaunch;
using finetune::kernels::cuda::Runner;

// Whether a kernel reads or writes here is not known, so reads are checked.
void* address(const void* pointer) {
  DeviceMemory& memory = DeviceMemory::instance();
  LateCopies::instance().use(memory.block_of(pointer), /*written=*/false);
  return memory.accessible(pointer);
}

void count(const KernelLaunch& one) {
  Counts::instance().add_kernel(std::string("cuda::") + one.kernel, one.bytes_read,
                                one.bytes_written);
}

void launch(const KernelLaunch& one) {
  cuda_on_cpu::run_on_cpu(one);
  count(one);
}

const Runner* driver = nullptr;

void launch_by_driver(const KernelLaunch& one) {
  driver->launch(one);
  count(one);
}

}  // namespace
}  // namespace pretend

extern "C" __attribute__((visibility("default"))) const finetune::kernels::cuda::Runner*
finetune_cuda_runner(const finetune::kernels::cuda::Runner* (*driver_runner)()) {
  static finetune::kernels::cuda::Runner runner = {.address = pretend::address,
                                                   .launch = pretend::launch};
  const char* const text = std::getenv("PRETEND_ACCELERATOR_KERNELS");
  const std::string_view wish = text == nullptr ? "" : text;
  if (wish == "driver") {
    pretend::driver = driver_runner();
    if (pretend::driver == nullptr) return nullptr;
    runner.launch = pretend::launch_by_driver;
  }
  return wish == "cuda" || wish == "driver" ? &runner : nullptr;
}
