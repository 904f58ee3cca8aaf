// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/uint8_codes.h"

#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {

FT_CLONES void uint8_codes(const float* values, int64_t count, float scale, float zero,
                           uint8_t* codes) {
  // Added to a number below 2^22, it leaves no bits for a fraction.
  constexpr float kWholes = 0x1.8p23F;
  for (int64_t i = 0; i < count; ++i) {
    float code = (values[i] / scale + kWholes) - kWholes + zero;
    code = code > 0.0F ? code : 0.0F;
    code = code < 255.0F ? code : 255.0F;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(code));
  }
}

}  // namespace finetune::kernels
