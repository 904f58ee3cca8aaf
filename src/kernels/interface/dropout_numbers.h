// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace finetune::kernels {

// The parameters of one dropout as kernels read them (finetune/kernels/dropout.h). Torch-free.
struct DropoutNumbers {
  double p = 0.0;
  std::array<uint32_t, 2> key = {};
  uint32_t first_position = 0;
  uint32_t layer_and_site = 0;

  // Elements whose random 32-bit number is below the threshold are dropped.
  [[nodiscard]] uint32_t threshold() const {
    return static_cast<uint32_t>(std::min(std::round(p * 0x1.0p32), 0x1.0p32 - 1));
  }
  [[nodiscard]] float scale() const { return static_cast<float>(1.0 / (1.0 - p)); }
};

}  // namespace finetune::kernels
