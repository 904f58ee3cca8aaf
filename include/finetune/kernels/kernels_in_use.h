// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

namespace finetune {

// The name of the kernels that compute attention and all other operations on a device: "cpu",
// "plain" (torch's operators), ...
[[nodiscard]] const char* kernels_in_use(c10::Device device);

}  // namespace finetune
