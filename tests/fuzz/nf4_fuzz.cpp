// SPDX-License-Identifier: MIT
// Input: a model.safetensors with matrices in NF4. An accepted matrix has the codes and scales of
// its shape, and finite values.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/kernels/nf4.h"
#include "finetune/model/nf4_files.h"
#include "finetune/tensor/finite.h"

namespace {

const std::string& folder() {
  struct Folder {
    std::string path =
        std::filesystem::temp_directory_path() / ("nf4_fuzz-" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static const Folder made;
  return made.path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace finetune;
  std::ofstream(folder() + "/model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const ModelTensors tensors = load_model_tensors(FileSystem::local(), folder());
    const Nf4Files files(tensors);
    for (const TensorInfo& info : tensors.tensors()) {
      if (!files.has(info.name)) continue;
      const QuantizedValues values = files.read(info.name);
      int64_t count = 1;
      for (const int64_t one : values.sizes) count *= one;
      if (!is_finite(kernels::dequantize_nf4(values.codes, values.scales, 0, count, at::kFloat))) {
        __builtin_trap();
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
