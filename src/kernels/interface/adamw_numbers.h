// SPDX-License-Identifier: MIT
#pragma once

// The scalars of one AdamW update (finetune/kernels/quantized_state.h). Torch-free.
namespace finetune::kernels {

// The scalars of bitsandbytes' AdamW kernels, computed once per update in float32 as they do.
struct BitsAndBytesNumbers {
  float beta1, beta2;
  float gradient1, gradient2;  // 1 - beta
  float step_size;             // negative: minus the learning rate with bias correction
  float epsilon;               // times the square root of the second moment's bias correction
  float decay;                 // factor of the weight; 1: no weight decay
};

// The scalars of torch's AdamW.
struct AdamWNumbers {
  float gradient1;  // 1 - beta1
  float beta2;
  float gradient2;   // 1 - beta2
  float step_size;   // negative, as above
  float correction;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float decay;  // factor of the weight; 1: no weight decay
};

}  // namespace finetune::kernels
