// SPDX-License-Identifier: MIT
#include "finetune/plan/emulated_precision.h"

namespace finetune {

std::string emulated_precision_note(Precision precision, bool has_instructions) {
  if (has_instructions || precision == Precision::kFloat32) return "";
  const bool is_bfloat16 = precision == Precision::kBFloat16;
  const std::string type = is_bfloat16 ? "bfloat16" : "float16";
  return std::string(is_bfloat16 ? "bf16" : "fp16") + ": true: this processor has no " + type +
         " instructions, and products in it would be " + (is_bfloat16 ? "8 to 10" : "many") +
         " times slower than in float32: "
         "activations are stored in " +
         type +
         ", products are computed in float32, which takes longer than float32 alone; to save "
         "memory, param_dtype: bfloat16 stores the weights so and computes in float32";
}

}  // namespace finetune
