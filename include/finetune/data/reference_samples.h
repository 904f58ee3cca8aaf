// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/dataset.h"

namespace finetune {

// Samples with what a reference model says of them (Task::reference()), as the values of each.
class ReferenceSamples final : public Dataset {
 public:
  // `values` [samples, n].
  ReferenceSamples(std::shared_ptr<const Dataset> samples, std::vector<float> values);

  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t size() const override { return samples_->size(); }
  [[nodiscard]] int64_t choices() const override { return samples_->choices(); }
  [[nodiscard]] int64_t choices_of(int64_t index) const override {
    return samples_->choices_of(index);
  }
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override {
    return samples_->length(index, choice);
  }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return samples_->extent(); }
  // That of the samples: they and the reference, which is part of a run's identity, determine the
  // values.
  [[nodiscard]] std::string fingerprint() const override { return samples_->fingerprint(); }

 private:
  std::shared_ptr<const Dataset> samples_;
  std::vector<float> values_;
};

}  // namespace finetune
