// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "finetune/data/token_span.h"

namespace finetune {

// One tokenised sequence, special tokens included, with its targets. Spans are valid as long as the
// dataset.
struct Example {
  TokenSpan input_ids;
  // One label per token. Empty if the collator makes the labels (dynamic masking) or the sample has
  // one of the targets below.
  std::span<const int32_t> labels;
  std::span<const uint8_t> attention_mask;  // empty: all ones; else as long as input_ids
  std::span<const uint8_t> token_type_ids;  // empty: all 0; else as long as input_ids

  std::optional<int64_t> label;   // the class or the right choice; kIgnoredLabel: unknown
  std::span<const float> values;  // a number (regression), or 0 and 1 for each label
  struct Answer {                 // first and last token; 0 and 0 if there is none
    int64_t start = 0;
    int64_t end = 0;
  };
  std::optional<Answer> answer;

  // For text given as words: the word index of each token, and the number of words before
  // truncation.
  std::span<const int32_t> words = {};
  int64_t word_count = 0;
};

// Properties of all samples together.
struct DatasetExtent {
  int64_t longest = 1;  // tokens of the longest sequence
  int64_t bytes = 0;    // size in memory
  int64_t token_types = 1;
};

// Samples by index. Immutable, so get() is thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual int64_t size() const = 0;
  // Sequences per sample: more than one for multiple choice.
  [[nodiscard]] virtual int64_t choices() const { return 1; }
  // Sequences of one sample: fewer than choices() only where datasets with other samples are mixed.
  [[nodiscard]] virtual int64_t choices_of(int64_t /*index*/) const { return choices(); }
  // Requires: 0 <= index < size(), 0 <= choice < choices_of(index).
  [[nodiscard]] virtual Example get(int64_t index, int64_t choice) const = 0;
  [[nodiscard]] Example get(int64_t index) const { return get(index, 0); }
  // Returns the number of tokens of a sequence, without reading it if possible. Requires: as get().
  [[nodiscard]] virtual int64_t length(int64_t index, int64_t choice) const {
    return static_cast<int64_t>(get(index, choice).input_ids.size());
  }
  [[nodiscard]] int64_t length(int64_t index) const { return length(index, 0); }
  // Returns the extent if it is known without reading each sample.
  [[nodiscard]] virtual std::optional<DatasetExtent> extent() const { return std::nullopt; }
  // A hash of the content (ids, labels and their split into samples), not of paths or times.
  [[nodiscard]] virtual std::string fingerprint() const = 0;
};

// Returns a hash of each sequence, [samples x choices]: equal sequences have equal hashes.
[[nodiscard]] std::vector<uint64_t> hash_sequences(const Dataset& dataset);

}  // namespace finetune
