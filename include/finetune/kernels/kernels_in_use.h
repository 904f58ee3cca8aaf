// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <string_view>

namespace finetune {

// Returns the name of the kernels for attention and all other operations on a device: "cpu",
// "plain" (torch's operators), ...
[[nodiscard]] const char* kernels_in_use(c10::Device device);

// Whether they are compiled at run time for this accelerator.
[[nodiscard]] inline bool has_compiled_kernels(c10::Device device) {
  return std::string_view(kernels_in_use(device)) == "cuda";
}

}  // namespace finetune
