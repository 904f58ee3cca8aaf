// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

namespace finetune {

// Returns the name of the kernels for attention and all other operations on a device: "cpu",
// "plain" (torch's operators), ...
[[nodiscard]] const char* kernels_in_use(c10::Device device);

}  // namespace finetune
