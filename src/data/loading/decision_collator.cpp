// SPDX-License-Identifier: MIT
#include "finetune/data/decision_collator.h"

#include <algorithm>
#include <vector>

#include "data/loading/padding.h"
#include "finetune/data/decision_dataset.h"

namespace finetune {
namespace {

// The samples of a batch, each in the order of its epoch.
class SamplesInEpoch final : public Dataset {
 public:
  SamplesInEpoch(const DecisionDataset& data, std::span<const SampleKey> keys)
      : data_(data), keys_(keys) {}
  using Dataset::get;
  [[nodiscard]] int64_t size() const override { return std::ssize(keys_); }
  [[nodiscard]] Example get(int64_t index, int64_t /*choice*/) const override {
    const SampleKey& key = keys_[static_cast<size_t>(index)];
    return data_.get_in_epoch(key.index, key.epoch);
  }
  [[nodiscard]] std::string fingerprint() const override { return data_.fingerprint(); }

 private:
  const DecisionDataset& data_;
  std::span<const SampleKey> keys_;
};

}  // namespace

void DecisionCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples,
                               Batch& batch) const {
  const auto* decisions = dynamic_cast<const DecisionDataset*>(&dataset);
  std::vector<SampleKey> keys(samples.begin(), samples.end());
  const auto fill = [&](const Dataset& data) {
    pad(data, keys, options_, batch);
    batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
    for (size_t row = 0; row < keys.size(); ++row) {
      const Example example = data.get(keys[row].index);
      const std::span labels =
          std::span(batch.labels)
              .subspan(row * static_cast<size_t>(batch.length), example.labels.size());
      std::ranges::copy(example.labels, labels.begin());
      for (const DecisionGroup& group : read_groups(labels)) {
        batch.targets += group.target.empty() ? 0 : 1;
      }
    }
  };
  if (decisions == nullptr) return fill(dataset);
  for (size_t i = 0; i < keys.size(); ++i) keys[i].index = static_cast<int64_t>(i);
  fill(SamplesInEpoch(*decisions, samples));
  for (size_t i = 0; i < samples.size(); ++i) batch.samples[i] = samples[i].index;
}

}  // namespace finetune
