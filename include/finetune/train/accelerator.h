// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/training_args.h"
#include "finetune/tensor/device.h"

namespace finetune {

// The device that the keys accelerator and use_cpu ask for.
[[nodiscard]] inline Accelerator accelerator_of(const TrainingArgs& args) {
  if (args.use_cpu || args.accelerator == "cpu") return Accelerator::kCpu;
  if (args.accelerator == "cuda") return Accelerator::kCuda;
  return args.accelerator == "tpu" ? Accelerator::kTpu : Accelerator::kAuto;
}

}  // namespace finetune
