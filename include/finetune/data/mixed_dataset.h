// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "finetune/data/dataset.h"

namespace finetune {

// One of several datasets that are mixed, and its share of the samples.
struct MixturePart {
  std::shared_ptr<const Dataset> data;
  double weight = 1.0;  // above 0; only the ratios of weights mean something
};

// Several datasets as one. A part has its weight's share of the samples of an epoch, and an epoch
// is as long as it takes to see every sample of every part at least once: the part with the most
// samples for its weight is seen once, the others again and again, their last, incomplete pass
// spread evenly over them (datasets' interleave_datasets with stopping_strategy "all_exhausted",
// in expectation). Which sample stands at an index depends on sizes and weights alone; the order
// over all indices is the loader's. A sample that is seen again has another index, so another mask.
class MixedDataset final : public Dataset {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 40;

  // Requires: parts, none empty, all with as many choices. Throws Error(kConfig), which names
  // `key`, where the weights make an epoch longer than kMaxSize.
  MixedDataset(std::vector<MixturePart> parts, const std::string& key);

  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return begins_.back(); }
  [[nodiscard]] int64_t choices() const override { return parts_.front().data->choices(); }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override;
  [[nodiscard]] std::optional<DatasetExtent> extent() const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }

  [[nodiscard]] const std::vector<MixturePart>& parts() const { return parts_; }
  // Samples of a part in an epoch.
  [[nodiscard]] int64_t share(size_t part) const { return begins_[part + 1] - begins_[part]; }

  // What stands at an index: a sample of a part. Requires: 0 <= index < size().
  struct Place {
    const Dataset& data;
    int64_t index;
  };
  [[nodiscard]] Place find(int64_t index) const;

 private:
  std::vector<MixturePart> parts_;
  std::vector<int64_t> begins_ = {0};  // part i has the indices [begins_[i], begins_[i + 1])
  std::string fingerprint_;
};

}  // namespace finetune
