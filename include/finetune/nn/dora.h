// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/nn/lora.h"
#include "finetune/params/store.h"

namespace finetune::nn {

// ||W + s B A|| of each output [out], in float32 (Liu et al. 2024, "DoRA", equation 5). W
// [out, in], or [in, out] if it is transposed; computed from blocks of rows, so that no second
// matrix exists. Between hold_factors() and release_factors() it is computed once.
[[nodiscard]] Tensor dora_norm(const LoraTerm& lora, const Weight& weight, bool is_transposed,
                               ParameterStore& store);

}  // namespace finetune::nn
