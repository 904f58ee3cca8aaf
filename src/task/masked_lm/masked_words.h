// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/batch.h"

namespace finetune {

// The labels of a batch, and where they stand (row * length + column), in order.
struct MaskedWords {
  explicit MaskedWords(const Batch& batch) {
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] == kIgnoredLabel) continue;
      positions.push_back(static_cast<int64_t>(i));
      labels.push_back(batch.labels[i]);
    }
  }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(labels.size()); }

  std::vector<int64_t> positions;
  std::vector<int64_t> labels;
};

}  // namespace finetune
