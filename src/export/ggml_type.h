// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace finetune {

// How GGUF stores values; the numbers are those of ggml.h.
enum class GgmlType : uint32_t { kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ8_0 = 8, kBF16 = 30 };

struct GgmlTraits {
  std::string_view name;  // "q8_0"
  size_t block_values;    // values that share a scale; 1: none do
  size_t block_bytes;
  uint32_t file_type;  // general.file_type of a model whose matrices have it
};
[[nodiscard]] const GgmlTraits& traits_of(GgmlType type);

// Writes the values in this type, as the gguf package does: rounded to the nearest; q8_0 and q4_0
// by ggml's reference (quantize_row_q8_0_ref, quantize_row_q4_0_ref). Requires: whole blocks, room
// for their bytes.
// Returns false if a value, or the scale of a block, is beyond float16.
[[nodiscard]] bool encode_ggml(GgmlType type, std::span<const float> values, uint8_t* bytes);

// Returns what the bytes of this type mean.
void decode_ggml(GgmlType type, const uint8_t* bytes, std::span<float> values);

}  // namespace finetune
