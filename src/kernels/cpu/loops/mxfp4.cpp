// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/mxfp4.h"

#include <cstring>

#include "finetune/base/mxfp4.h"
#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {

FT_CLONES void dequantize_mxfp4_blocks(const uint8_t* codes, const uint8_t* scales,
                                       const Mxfp4Pairs& pairs, int64_t blocks, float* values) {
  float block[kMxfp4Block];
  for (; blocks > 0; --blocks) {
    for (int64_t i = 0; i < kMxfp4Block / 2; ++i) std::memcpy(block + 2 * i, &pairs[codes[i]], 8);
    const float scale = mxfp4_scale(*scales++);
    for (int64_t i = 0; i < kMxfp4Block; ++i) values[i] = block[i] * scale;
    codes += kMxfp4Block / 2;
    values += kMxfp4Block;
  }
}

}  // namespace finetune::kernels
