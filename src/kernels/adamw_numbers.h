// SPDX-License-Identifier: MIT
#pragma once

// The scalars of one AdamW update (finetune/kernels/quantized_state.h). Torch-free.
namespace finetune::kernels {

// What bitsandbytes' kernels compute before the first element, in float32 as they do.
struct BitsAndBytesNumbers {
  float beta1, beta2;
  float gradient1, gradient2;  // 1 - beta
  float step_size;             // below zero
  float epsilon;               // times the square root of the second correction
  float decay;                 // 1: none
};

// What torch's AdamW does.
struct AdamWNumbers {
  float gradient1;  // 1 - beta1
  float beta2;
  float gradient2;   // 1 - beta2
  float step_size;   // below zero
  float correction;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float decay;  // 1: none
};

}  // namespace finetune::kernels
