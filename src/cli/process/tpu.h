// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <string>

namespace finetune::cli {

// Returns a note if the environment requests a TPU, as with PyTorch/XLA and on Google's machines;
// else "".
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
