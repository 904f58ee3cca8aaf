// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/layer_operations.h"
#include "kernels/interface/attention_core.h"

namespace finetune::kernels::cuda {

// Attention by the kernels of device/tiled_attention.cu: in 16 bits, with dropout, masks, windows
// and fewer key heads, without soft-capping. In sizes that are served, as FlashAttention's
// (kernels/flash_attention.h); whether the GPU has tensor cores for it the caller knows.
[[nodiscard]] bool has_tiles(const Attention& inputs);
[[nodiscard]] Attended tiled_attention(const Attention& inputs);
// Overwrites key and value with their gradients.
[[nodiscard]] AttendedGradients tiled_attention_backward(const Attention& inputs,
                                                         const Attended& forward,
                                                         const Tensor& gradient);

}  // namespace finetune::kernels::cuda
