// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/dataset.h"

namespace finetune {

// Samples in memory: all ids in one array, indexed by offsets. Members that a task does not use are
// empty.
struct TokenContent {
  std::vector<int32_t> ids = {};
  std::vector<int64_t> offsets = {0};  // sequence i is ids[offsets[i], offsets[i + 1])
  std::vector<int32_t> labels = {};    // one for each id
  std::vector<uint8_t> masks = {};     // attention, one for each id
  std::vector<uint8_t> types = {};     // token types, one for each id

  int64_t choices = 1;                        // sequences per sample, stored consecutively
  std::vector<int32_t> classes = {};          // one for each sample, kIgnoredLabel: unknown
  int64_t outputs = 0;                        // values per sample
  std::vector<float> values = {};             // [samples, outputs]
  std::vector<Example::Answer> answers = {};  // one for each sample

  // Not part of the fingerprint, because the text determines them.
  std::vector<int32_t> words = {};        // one for each id
  std::vector<int64_t> word_counts = {};  // one for each sample
};

// Tokenised data with a known number of tokens.
class SequenceDataset : public Dataset {
 public:
  [[nodiscard]] virtual int64_t tokens() const = 0;
  [[nodiscard]] virtual int64_t longest() const = 0;  // tokens of the longest sequence
};

// Samples stored in another dataset, plus additional data of a task.
class SampleView : public SequenceDataset {
 public:
  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return samples_->size(); }
  [[nodiscard]] int64_t choices() const override { return samples_->choices(); }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override {
    return samples_->get(index, choice);
  }
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override {
    return samples_->length(index, choice);
  }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return samples_->extent(); }
  [[nodiscard]] std::string fingerprint() const override { return samples_->fingerprint(); }
  [[nodiscard]] int64_t tokens() const override { return samples_->tokens(); }
  [[nodiscard]] int64_t longest() const override { return samples_->longest(); }

 protected:
  explicit SampleView(std::shared_ptr<const SequenceDataset> samples)
      : samples_(std::move(samples)) {}

 private:
  std::shared_ptr<const SequenceDataset> samples_;
};

// Some of the samples of another dataset. Their class, which says why others are left out, is no
// target.
class KeptSamples : public SampleView {
 public:
  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return std::ssize(kept_); }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override {
    Example example = SampleView::get(kept_[static_cast<size_t>(index)], choice);
    example.label.reset();
    return example;
  }
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override {
    return SampleView::length(kept_[static_cast<size_t>(index)], choice);
  }

 protected:
  using SampleView::SampleView;
  void keep(int64_t index) { kept_.push_back(index); }

 private:
  std::vector<int64_t> kept_;  // indices in the other dataset
};

class TokenDataset final : public SequenceDataset {
 public:
  // Requires: offsets start at 0, do not decrease and end at ids.size(); lists have matching sizes.
  explicit TokenDataset(TokenContent content);

  using Dataset::get;
  [[nodiscard]] int64_t size() const override;
  [[nodiscard]] int64_t choices() const override { return content_.choices; }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  using Dataset::length;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

  [[nodiscard]] int64_t tokens() const override {
    return static_cast<int64_t>(content_.ids.size());
  }
  [[nodiscard]] int64_t longest() const override { return longest_; }

 private:
  TokenContent content_;
  int64_t longest_ = 0;
  std::string fingerprint_;
};

}  // namespace finetune
