// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A copy of host values as a tensor [n] on `device`, of their type.
[[nodiscard]] Tensor to_device(const std::vector<int64_t>& values, c10::Device device);
[[nodiscard]] Tensor to_device(const std::vector<float>& values, c10::Device device);

}  // namespace finetune
