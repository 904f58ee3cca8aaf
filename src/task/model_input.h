// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Copy host values to a tensor [n] of their type on `device`.
[[nodiscard]] Tensor to_device(const std::vector<int64_t>& values, c10::Device device);
[[nodiscard]] Tensor to_device(const std::vector<float>& values, c10::Device device);

}  // namespace finetune
