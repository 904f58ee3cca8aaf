// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "finetune/tensor/tensor.h"

// NormalFloat of four bits (QLoRA, arXiv 2305.14314, appendix E), in the layout and by the formula
// of bitsandbytes, bit for bit: a tensor is a row of values in blocks of 64, each with one scale.
namespace finetune::kernels {

inline constexpr int64_t kNf4Block = 64;
inline constexpr int64_t kNf4ScaleBlock = 256;  // of double quantisation
// The values of the codes, ascending; code 7 is 0.
[[nodiscard]] const std::array<float, 16>& nf4_map();

[[nodiscard]] constexpr int64_t nf4_code_bytes(int64_t values) { return (values + 1) / 2; }
[[nodiscard]] constexpr int64_t nf4_blocks(int64_t values) {
  return (values + kNf4Block - 1) / kNf4Block;
}

// Values as codes uint8 [nf4_code_bytes(n)], the first of two values in the high half, and scales
// float32 [nf4_blocks(n)], the largest magnitude of each block. `values`: n contiguous float32,
// finite, on the CPU. The result does not depend on the number of threads.
void quantize_nf4(const Tensor& values, const Tensor& codes, const Tensor& scales);

// Returns values [first, first + count) of the row in this type: float32, rounded to nearest. On
// any device. Requires: they are there.
[[nodiscard]] Tensor dequantize_nf4(const Tensor& codes, const Tensor& scales, int64_t first,
                                    int64_t count, at::ScalarType type);

// Scales that are quantised themselves (double quantisation): the mean of all, which is computed
// with one thread, and of the rest codes of 8 bits in blocks of 256.
struct NestedNf4Scales {
  Tensor codes;   // uint8, one a scale
  Tensor absmax;  // float32, one for 256
  float offset = 0.0F;
  Tensor map;  // float32 [256], the values of the codes

  // The scales that they mean, float32.
  [[nodiscard]] Tensor unpack() const;
};
// With dynamic_map(true).
[[nodiscard]] NestedNf4Scales quantize_nf4_scales(const Tensor& scales);

}  // namespace finetune::kernels
