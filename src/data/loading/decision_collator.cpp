// SPDX-License-Identifier: MIT
#include "finetune/data/decision_collator.h"

#include <vector>

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
  if (decisions == nullptr) {
    padding_.collate(dataset, samples, batch);
  } else {
    std::vector<SampleKey> keys(samples.begin(), samples.end());
    for (size_t i = 0; i < keys.size(); ++i) keys[i].index = static_cast<int64_t>(i);
    padding_.collate(SamplesInEpoch(*decisions, samples), keys, batch);
    for (size_t i = 0; i < samples.size(); ++i) batch.samples[i] = samples[i].index;
  }
  batch.targets = 0;
  const auto length = static_cast<size_t>(batch.length);
  for (size_t row = 0; row < samples.size(); ++row) {
    for (const DecisionGroup& group :
         read_groups(std::span(batch.labels).subspan(row * length, length))) {
      batch.targets += group.target.empty() ? 0 : 1;
    }
  }
}

}  // namespace finetune
