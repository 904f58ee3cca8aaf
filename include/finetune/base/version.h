// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

inline constexpr char kVersion[] = "0.1.0";

// Raised by one whenever a training step of the same run on the same machine ends in other bits
// than before. A checkpoint has the number; a resume across it says "not bit-exact from here".
//   1: all checkpoints without a number
//   2: fp16 and bf16 on CPUs without instructions for 16 bits (AVX2) add products in another order
inline constexpr int kArithmeticVersion = 2;

}  // namespace finetune
