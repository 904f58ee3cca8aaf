// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// The tokens of a batch [B, T] without the padding after each sequence, concatenated: [1, N, C]
// replaces [B, T, C], so that nothing is computed for padding. Results for tokens do not change:
// attention stays within a sequence, and dropout uses the sequence's index and the token's
// position.
struct TokenLayout {
  std::vector<int64_t> offsets;  // [B + 1]: sequence b has tokens [offsets[b], offsets[b + 1])
  int64_t longest = 0;           // tokens of the longest sequence
  Tensor cells;                  // [N] int64, ascending: index of each token in [B, T], b * T + t
  Tensor sequences;              // [N] int64: b
  Tensor positions;              // [N] int64: t
  Tensor starts;                 // [B + 1] int64: offsets; undefined if no kernel reads them
  Tensor starts32;               // the same in int32, for torch's operators
  Tensor mask;  // [1, 1, 1, N] bool, true where it may be attended to; undefined: all
  // [B] tokens of the whole sequences, where their ends are left out because nothing reads them:
  // rotations that depend on the length go by these. Empty: as offsets say.
  std::vector<int64_t> whole_lengths = {};

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  [[nodiscard]] int64_t tokens() const { return offsets.back(); }
  [[nodiscard]] int64_t length(int64_t row) const {
    const auto r = static_cast<size_t>(row);
    return offsets[r + 1] - offsets[r];
  }
};

// Makes the layout of the first lengths[b] tokens of each row of [B, length]; tensors are on
// `device`. Requires: 1 <= lengths[b] <= length.
[[nodiscard]] std::shared_ptr<TokenLayout> make_token_layout(const std::vector<int64_t>& lengths,
                                                             int64_t length, c10::Device device);

}  // namespace finetune
