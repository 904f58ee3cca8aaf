// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/data/mixed_dataset.h"
#include "finetune/data/pretraining_dataset.h"

namespace finetune {

// A mixture of pretraining data. A repeated sample has another index in the mixture, and so another
// mask in the same epoch; shards are masked beforehand, so their samples have the same mask.
class MixedPretraining final : public PretrainingDataset {
 public:
  // Requires: every part is a PretrainingDataset.
  explicit MixedPretraining(std::shared_ptr<const MixedDataset> mixture)
      : mixture_(std::move(mixture)) {}

  [[nodiscard]] int64_t size() const override { return mixture_->size(); }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return mixture_->extent(); }
  [[nodiscard]] std::string fingerprint() const override { return mixture_->fingerprint(); }
  void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const override {
    const auto [data, position] = mixture_->find(index);
    const auto* part = dynamic_cast<const PretrainingDataset*>(&data);
    FT_CHECK(part != nullptr, "a mixture of pretraining is made of its kind of data");
    part->make(position, mask, example);
  }
  [[nodiscard]] const MixedDataset& mixture() const { return *mixture_; }

 private:
  std::shared_ptr<const MixedDataset> mixture_;
};

}  // namespace finetune
