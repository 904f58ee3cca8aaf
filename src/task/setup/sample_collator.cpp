// SPDX-License-Identifier: MIT
#include "task/setup/sample_collator.h"

#include <utility>

namespace finetune {
namespace {

class SampleCollator final : public Collator {
 public:
  explicit SampleCollator(std::shared_ptr<const Collator> padding) : padding_(std::move(padding)) {}

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override {
    padding_->collate(dataset, samples, batch);
    batch.targets = batch.size();
  }

 private:
  std::shared_ptr<const Collator> padding_;
};

}  // namespace

std::shared_ptr<const Collator> make_sample_collator(std::shared_ptr<const Collator> padding) {
  return std::make_shared<SampleCollator>(std::move(padding));
}

}  // namespace finetune
