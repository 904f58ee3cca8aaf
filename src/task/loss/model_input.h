// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Copy host values to a tensor [n] of their type on `device`.
[[nodiscard]] Tensor to_device(const std::vector<int64_t>& values, c10::Device device);
[[nodiscard]] Tensor to_device(const std::vector<float>& values, c10::Device device);

// Returns the batch's tokens, mask and types, with the last row repeated until it is full.
[[nodiscard]] Batch with_full_rows(const Batch& batch);

}  // namespace finetune
