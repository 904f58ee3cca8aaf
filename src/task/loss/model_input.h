// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <span>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/model/model.h"
#include "finetune/tensor/tensor.h"

namespace finetune {

// Copy host values to a tensor [n] of their type on `device`.
[[nodiscard]] Tensor to_device(const std::vector<int64_t>& values, c10::Device device);
[[nodiscard]] Tensor to_device(const std::vector<float>& values, c10::Device device);

// ModelInput::read_positions of positions in any order, of which some may be given repeatedly.
[[nodiscard]] Tensor read_positions(std::vector<int64_t> positions, c10::Device device);

// Leaves the first tokens of rows, special ones included, out of the pooling. `counts`: how many,
// of row r at index r modulo the length of the list; empty: none.
void leave_out_of_pooling(std::span<const int64_t> counts, const Batch& batch, c10::Device device,
                          ModelInput& input);

// Returns the batch's tokens, mask and types, with the last row repeated until it is full.
[[nodiscard]] Batch with_full_rows(const Batch& batch);

}  // namespace finetune
