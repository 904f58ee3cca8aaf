// SPDX-License-Identifier: MIT
// For tests/parity/test_safetensors.py: reads files one after another from standard input (a length
// of four bytes, then the bytes) and answers each with a line: null if it is refused, else the list
// of its tensors.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "finetune/base/error.h"
#include "finetune/tensor/safetensors_header.h"
#include "support/memory_file.h"

namespace {

nlohmann::ordered_json verdict(const std::string& bytes) {
  using namespace finetune;
  try {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    const finetune::testing::MemoryFile file(bytes);
    for (const TensorInfo& tensor : read_safetensors_header(file, "input").tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"offset", tensor.offset},
                         {"bytes", tensor.bytes}});
    }
    return tensors;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

int main() {
  uint32_t size = 0;
  while (std::fread(&size, sizeof size, 1, stdin) == 1) {
    std::string bytes(size, '\0');
    if (std::fread(bytes.data(), 1, size, stdin) != size) return 1;
    std::cout << verdict(bytes).dump() << '\n';
  }
  return 0;
}
