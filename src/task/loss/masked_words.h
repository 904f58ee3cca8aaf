// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/batch.h"

namespace finetune {

// The labels of a batch in order, and their positions (row * length + column).
struct MaskedWords {
  explicit MaskedWords(const Batch& batch) {
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.labels[i] == kIgnoredLabel) continue;
      positions.push_back(static_cast<int64_t>(i));
      labels.push_back(batch.labels[i]);
    }
  }
  // Throws Error(kData) for a label outside the model's vocabulary. Checks in host memory, because
  // a device would have to be waited for.
  void check_labels(int64_t vocabulary) const {
    for (const int64_t label : labels) {
      if (label == kIgnoredLabel || (label >= 0 && label < vocabulary)) continue;
      throw Error(ErrorKind::kData, format_text("label {} is not in the vocabulary of {} entries: "
                                                "use the tokenizer that the model was made for",
                                                label, vocabulary));
    }
  }
  // `few_sizes`: for a device that compiles operators for shapes, where each number of labels would
  // be another: ignored ones are added up to a multiple of a quarter of the cells.
  MaskedWords(const Batch& batch, bool few_sizes) : MaskedWords(batch) {
    if (!few_sizes || labels.empty()) return;
    const int64_t cells = std::max(batch.rows, batch.full_rows) * batch.length;
    const int64_t step = std::max<int64_t>(8, (cells + 3) / 4);
    fill((size() + step - 1) / step * step);
  }
  // Adds ignored labels, such as those that the outputs were computed for.
  void fill(int64_t size) {
    positions.resize(static_cast<size_t>(size), 0);
    labels.resize(static_cast<size_t>(size), kIgnoredLabel);
  }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(labels.size()); }

  std::vector<int64_t> positions;
  std::vector<int64_t> labels;
};

}  // namespace finetune
