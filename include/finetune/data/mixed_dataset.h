// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "finetune/data/dataset.h"

namespace finetune {

// One dataset of a mixture, and its share of the samples.
struct MixturePart {
  std::shared_ptr<const Dataset> data;
  double weight = 1.0;    // positive; only the ratios matter
  std::string name = {};  // for messages
};

// Several datasets as one. Each part has its weight's share of the samples of an epoch. An epoch
// ends when every sample of every part was seen at least once: the part with the most samples per
// weight is seen once, the others repeatedly, with their last, incomplete pass spread evenly over
// them (in expectation, interleave_datasets of Hugging Face's datasets with stopping_strategy
// "all_exhausted"). The sample at an index depends only on sizes and weights; the loader orders the
// indices. A repeated sample has another index, and so another mask.
class MixedDataset final : public Dataset {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 40;

  // Requires: at least one part, no empty part. Throws Error(kConfig), naming `key`, if the weights
  // make an epoch longer than kMaxSize.
  // `also`: what else the fingerprint is of.
  MixedDataset(std::vector<MixturePart> parts, const std::string& key,
               const std::string& also = "");

  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return begins_.back(); }
  [[nodiscard]] int64_t choices() const override { return choices_; }
  [[nodiscard]] int64_t choices_of(int64_t index) const override;
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override;
  [[nodiscard]] std::optional<DatasetExtent> extent() const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

  [[nodiscard]] const std::vector<MixturePart>& parts() const { return parts_; }
  // Returns the number of samples that a part contributes to an epoch.
  [[nodiscard]] int64_t share(size_t part) const { return begins_[part + 1] - begins_[part]; }

  // The part and sample at an index. Requires: 0 <= index < size().
  struct Position {
    const Dataset& data;
    int64_t index;
  };
  [[nodiscard]] Position find(int64_t index) const;

 private:
  std::vector<MixturePart> parts_;
  std::vector<int64_t> begins_ = {0};  // part i has the indices [begins_[i], begins_[i + 1])
  int64_t choices_ = 1;                // the most of a part
  std::string fingerprint_;
};

}  // namespace finetune
