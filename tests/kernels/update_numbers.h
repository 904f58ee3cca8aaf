// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/interface/adamw_numbers.h"

namespace finetune::kernels {

// Scalars of an AdamW update in the arithmetic of each optimizer.
inline constexpr BitsAndBytesNumbers kTheirNumbers = {.beta1 = 0.9F,
                                                      .beta2 = 0.999F,
                                                      .gradient1 = 0.1F,
                                                      .gradient2 = 0.001F,
                                                      .step_size = -0.003F,
                                                      .epsilon = 3e-9F,
                                                      .decay = 0.999F};
inline constexpr AdamWNumbers kOurNumbers = {.gradient1 = 0.1F,
                                             .beta2 = 0.999F,
                                             .gradient2 = 0.001F,
                                             .step_size = -0.01F,
                                             .correction = 3.0F,
                                             .epsilon = 1e-8F,
                                             .decay = 0.999F};

}  // namespace finetune::kernels
