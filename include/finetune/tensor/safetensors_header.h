// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"

// The JSON header of a safetensors file, without torch.
namespace finetune {

// In the reference implementation's order of tensors, smallest first.
enum class DType { kBool, kU8, kI8, kI16, kF16, kBF16, kI32, kF32, kF64, kI64 };

[[nodiscard]] std::string dtype_name(DType dtype);  // "F32"
[[nodiscard]] uint64_t dtype_bytes(DType dtype);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Reads and checks the header of a file; messages name it `path`. Stricter than the reference
// implementation: every accepted file is accepted there with the same meaning. The tensors must
// cover the file from the header to the end without gaps or overlap, names must be unique, and
// sizes must agree with shapes. Throws Error(kData) with path, tensor and reason.
[[nodiscard]] SafetensorsHeader read_safetensors_header(const ReadableFile& file,
                                                        const std::string& path);

// Returns the bytes before the data: length and padded JSON. Sets offset and bytes of every tensor
// and sorts them like the reference implementation (type descending, then name).
[[nodiscard]] std::string make_safetensors_header(SafetensorsHeader& header);

}  // namespace finetune
