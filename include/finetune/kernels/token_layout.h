// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// The tokens of a batch [B, T] without the padding behind each sequence, one sequence after the
// other: [1, N, C] stands for [B, T, C], so that nothing is computed for padding. What a token is
// does not change by it: attention stays within its sequence, dropout is that of its sequence's
// place and its own.
struct TokenLayout {
  std::vector<int64_t> offsets;  // [B + 1]: sequence b holds tokens [offsets[b], offsets[b + 1])
  int64_t longest = 0;           // tokens of a sequence
  Tensor cells;                  // [N] int64, ascending: index of each token in [B, T], b * T + t
  Tensor sequences;              // [N] int64: b
  Tensor places;                 // [N] int64: t
  Tensor starts;                 // [B + 1] int64: offsets; undefined where no kernel reads them
  Tensor mask;  // [1, 1, 1, N] bool, true where it may be attended to; undefined: all

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  [[nodiscard]] int64_t tokens() const { return offsets.back(); }
  [[nodiscard]] int64_t length(int64_t row) const {
    const auto r = static_cast<size_t>(row);
    return offsets[r + 1] - offsets[r];
  }
};

// The layout of the first lengths[b] tokens of each row of [B, length]; tensors are on `device`.
// Requires: 1 <= lengths[b] <= length.
[[nodiscard]] std::shared_ptr<TokenLayout> make_token_layout(const std::vector<int64_t>& lengths,
                                                             int64_t length, c10::Device device);

}  // namespace finetune
