// SPDX-License-Identifier: MIT
#include "kernels/interface/kernels.h"

#include "finetune/base/error.h"
#include "finetune/kernels/dry_device.h"
#include "finetune/kernels/kernels_in_use.h"
#include "finetune/tensor/device.h"
#include "finetune/tensor/meta_memory.h"
#include "kernels/cpu/operations.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/runner.h"
#include "kernels/meta/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels {
namespace {

// Returns cuda's table if there is a runner for its kernels, else plain's.
const Kernels& launched_by(const cuda::Runner* runner) {
  if (runner == nullptr) return plain::kKernels;
  cuda::set_runner(runner);
  return cuda::kKernels;
}

thread_local const DryDevice* dry_device_of_thread = nullptr;

// Those that a dry run allocates as.
const Kernels& kernels_of(KernelTable table) {
  switch (table) {
    case KernelTable::kCpu:
      return meta::kCpuKernels;
    case KernelTable::kCuda:
      return cuda::kKernels;
    case KernelTable::kPlain:
      break;
  }
  return plain::kKernels;
}

}  // namespace

DryRun::DryRun(const DryDevice& device) : device_(device) {
  FT_CHECK(dry_device_of_thread == nullptr, "one dry run at a time");
  register_meta_operators();
  dry_device_of_thread = &device_;
}

DryRun::~DryRun() { dry_device_of_thread = nullptr; }

int64_t chunk_values(KernelTable table) { return kernels_of(table).chunk_values; }

const DryDevice& dry_device() {
  static const DryDevice kCpu;
  return dry_device_of_thread == nullptr ? kCpu : *dry_device_of_thread;
}

const Kernels& kernels_for(c10::Device device) {
  switch (device.type()) {
    case c10::DeviceType::Meta:
      return kernels_of(dry_device().table);
    case c10::DeviceType::CPU:
      return cpu::kKernels;
    case c10::DeviceType::CUDA: {
      static const Kernels& kernels = launched_by(cuda::driver_runner());
      return kernels;
    }
    case c10::DeviceType::PrivateUse1: {
      static const Kernels& kernels = launched_by(cuda::preloaded_runner());
      return kernels;
    }
    default:
      return plain::kKernels;
  }
}

const Kernels& kernels_for(const Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  const bool is_known = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  return is_known ? kernels_for(x.device()) : plain::kKernels;
}

}  // namespace finetune::kernels

namespace finetune {

bool is_asynchronous(c10::Device device) { return kernels::kernels_for(device).is_asynchronous; }

Tensor uploaded(const Tensor& host, c10::Device device) {
  if (!features_of(device).pinned) return host.to(device);
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

const char* kernels_in_use(c10::Device device) { return kernels::kernels_for(device).name; }

const char* attention_in_use(c10::Device device) {
  const kernels::FlashAttention* flash = kernels::kernels_for(device).flash_attention;
  return flash == nullptr || !flash->is_there(device) ? "row" : flash->name();
}

bool has_tiled_attention(c10::Device device) {
  const kernels::FlashAttention* flash = kernels::kernels_for(device).flash_attention;
  return flash != nullptr && flash->has_tiles(device);
}

std::string describe_kernels(c10::Device device) {
  if (device.is_cpu()) return "";
  if (!has_compiled_kernels(device)) return "torch's operators: up to 20 times as many launches";
  return device.is_cuda() ? kernels::cuda::driver_description() : "those of a preloaded library";
}

}  // namespace finetune
