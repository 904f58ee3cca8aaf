// SPDX-License-Identifier: MIT
#include "finetune/data/reference_samples.h"

#include "finetune/base/error.h"

namespace finetune {

ReferenceSamples::ReferenceSamples(std::shared_ptr<const Dataset> samples,
                                   std::vector<float> values)
    : samples_(std::move(samples)), values_(std::move(values)) {
  FT_CHECK(samples_->size() > 0 && values_.size() % static_cast<size_t>(samples_->size()) == 0,
           "each sample has as many values");
}

Example ReferenceSamples::get(int64_t index, int64_t choice) const {
  Example example = samples_->get(index, choice);
  const size_t of_one = values_.size() / static_cast<size_t>(samples_->size());
  example.values = std::span(values_).subspan(static_cast<size_t>(index) * of_one, of_one);
  return example;
}

}  // namespace finetune
