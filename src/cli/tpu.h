// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <string>

namespace finetune::cli {

// One line where the environment asks for a TPU, as PyTorch/XLA and Google's machines do; else "".
inline std::string tpu_note() {
  const char* device = std::getenv("PJRT_DEVICE");
  const bool is_asked = (device != nullptr && std::string(device) == "TPU") ||
                        std::getenv("TPU_NAME") != nullptr ||
                        std::getenv("COLAB_TPU_ADDR") != nullptr;
  return is_asked ? "libtorch has no TPU device: training uses a GPU where one is there, else the "
                    "CPU; take a machine with a GPU"
                  : "";
}

}  // namespace finetune::cli
