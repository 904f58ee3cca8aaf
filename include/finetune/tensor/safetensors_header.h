// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"

// The JSON header of a safetensors file, without torch.
namespace finetune {

// In the order in which the reference implementation sorts tensors, smallest first.
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

// Reads and checks the header of a file, `path` names it in messages. Stricter than the reference:
// whatever is accepted here is accepted there and means the same. The tensors cover the file from
// the header to the end without holes or overlap, names are unique, sizes agree with shapes.
// Throws Error(kData) with path, tensor and reason.
[[nodiscard]] SafetensorsHeader read_safetensors_header(const ReadableFile& file,
                                                        const std::string& path);

// The bytes before the data: length and padded JSON. Sets offset and bytes of every tensor and
// sorts them as the reference implementation does (type descending, then name).
[[nodiscard]] std::string make_safetensors_header(SafetensorsHeader& header);

}  // namespace finetune
