// SPDX-License-Identifier: MIT
#include "kernels/kernels.h"

#include "finetune/kernels/kernels_in_use.h"
#include "kernels/cpu/operations.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels {

const Kernels& kernels_for(c10::Device device) {
  switch (device.type()) {
    case c10::DeviceType::CPU:
      return cpu::kKernels;
    case c10::DeviceType::CUDA:  // none of its own yet: cuda::kKernels goes here
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

const char* kernels_in_use(c10::Device device) { return kernels::kernels_for(device).name; }

}  // namespace finetune
