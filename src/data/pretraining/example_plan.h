// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "finetune/base/random.h"
#include "finetune/data/document_examples.h"

namespace finetune {

// The sentences of an example: from `first` on, and for a pair from `other` on, truncated to `kept`
// tokens.
struct ExamplePlan {
  int64_t first = 0;
  int64_t other = 0;
  int32_t first_count = 0;  // sentences
  int32_t other_count = 0;  // 0: no pair
  int32_t kept = 0;
  int32_t label = 0;  // PretrainingExample::next_sentence_label
};

// The examples of all repetitions in order. Memory contains the start of every sixteenth example;
// those between are planned again on demand, so that any number of examples fits.
class ExamplePlans {
 public:
  // Calls `visit` with each plan in order. Throws Interrupted. Requires: `documents` and `options`
  // outlive this object.
  ExamplePlans(const Documents& documents, const ExampleOptions& options,
               const std::function<void(const ExamplePlan&)>& visit, const ShowStep& show = {});

  [[nodiscard]] int64_t size() const { return size_; }
  // Requires: 0 <= index < size(). Thread-safe.
  [[nodiscard]] ExamplePlan at(int64_t index) const;
  [[nodiscard]] int64_t memory_bytes() const;

  // The start of an example.
  struct Position {
    int64_t repetition = 0;
    int64_t document = 0;
    int64_t first = 0;  // sentence
    random::Sequence sequence = random::Sequence(0);
  };

 private:
  const Documents& documents_;
  const ExampleOptions& options_;
  int64_t size_ = 0;
  std::vector<Position> positions_;
};

}  // namespace finetune
