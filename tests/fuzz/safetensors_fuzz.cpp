// SPDX-License-Identifier: MIT
// Input: a safetensors file; if its first byte is '{', also the text of an index.
#include <cstddef>
#include <cstdint>
#include <string>

#include "../support/memory_file.h"
#include "finetune/base/error.h"
#include "finetune/tensor/safetensors_header.h"
#include "finetune/tensor/weight_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const finetune::SafetensorsHeader header =
        finetune::read_safetensors_header(finetune::testing::MemoryFile(bytes), "input");
    for (const finetune::TensorInfo& tensor : header.tensors) {
      // Every accepted tensor must be inside the file.
      if (tensor.offset > size || tensor.bytes > size - tensor.offset) __builtin_trap();
    }
  } catch (const finetune::Error&) {
  }
  if (size > 0 && data[0] == '{') {
    try {
      for (const auto& entry : finetune::parse_shard_index(bytes, "input")) {
        if (entry.second.find('/') != std::string::npos) __builtin_trap();
      }
    } catch (const finetune::Error&) {
    }
  }
  return 0;
}
