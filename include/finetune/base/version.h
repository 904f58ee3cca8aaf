// SPDX-License-Identifier: MIT
#pragma once

namespace finetune {

inline constexpr char kVersion[] = "0.1.0";

// Raised by one whenever a training step of the same run on the same machine ends in other bits
// than before. A checkpoint has the number; a resume across it says "not bit-exact from here".
//   1: all checkpoints without a number
//   2: fp16 and bf16 on CPUs without instructions for 16 bits ended in other bits in a build of
//      2026-11-22 (f46f3c7)
//   3: what follows attention in the last layer is computed for the tokens that are read alone
//      (2026-11-30)
//   4: on the CPU its queries and attention, too; in decoders no token after a row's last label
//      (2026-12-01)
//   5: on the CPU attention's products are kernels of finetune, and on processors of AMD all large
//      ones of float32 (2026-12-01)
inline constexpr int kArithmeticVersion = 5;

}  // namespace finetune
