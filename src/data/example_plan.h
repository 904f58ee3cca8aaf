// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/document_examples.h"

namespace finetune {

// Where an example's text lies: sentences from `first` on, and of a pair those from `other` on, of
// which the first `kept` tokens are taken.
struct ExamplePlan {
  int64_t first = 0;
  int64_t other = 0;
  int32_t first_count = 0;  // sentences
  int32_t other_count = 0;  // 0: no pair
  int32_t kept = 0;
  int32_t label = 0;  // PretrainingExample::next_sentence_label
};

// The examples of all repetitions, one after the other.
[[nodiscard]] std::vector<ExamplePlan> plan_examples(const Documents& documents,
                                                     const ExampleOptions& options);

}  // namespace finetune
