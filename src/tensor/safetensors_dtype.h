// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/tensor/safetensors_header.h"

namespace finetune {

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kU8:
      return at::kByte;
    case DType::kI8:
      return at::kChar;
    case DType::kI16:
      return at::kShort;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI32:
      return at::kInt;
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kI64:
      return at::kLong;
  }
  FT_CHECK(false, "unknown DType");
}

inline DType dtype_of(at::ScalarType type) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI8, DType::kI16, DType::kF16,
                            DType::kBF16, DType::kI32, DType::kF32, DType::kF64, DType::kI64}) {
    if (scalar_type(dtype) == type) return dtype;
  }
  FT_CHECK(false, "a tensor of a type that is not written to files");
}

// Any other byte in a C++ bool is undefined behaviour in every kernel that reads it.
inline bool are_booleans(const void* data, uint64_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  return std::all_of(begin, begin + bytes, [](unsigned char value) { return value <= 1; });
}

}  // namespace finetune
