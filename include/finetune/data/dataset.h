// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace finetune {

// One sample as token ids, special tokens included. Spans stay valid as long as the dataset.
struct Example {
  std::span<const int32_t> input_ids;
  // Empty where the collator makes the labels (dynamic masking); else as long as input_ids.
  std::span<const int32_t> labels;
  // Empty means all ones; else as long as input_ids.
  std::span<const uint8_t> attention_mask;
};

// Samples by number. Immutable: get() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;
  [[nodiscard]] virtual Example get(int64_t index) const = 0;  // Requires: 0 <= index < size()
  // Of the content (ids, labels and their cut into samples), not of paths or times.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
};

}  // namespace finetune
