// SPDX-License-Identifier: MIT
#include "data/example_plan.h"

#include <algorithm>

#include "finetune/base/random.h"

namespace finetune {
namespace {

// One document in one repetition, as Devlin et al. 2019, section A.2, and create_pretraining_data
// cut it.
class DocumentPlanner {
 public:
  DocumentPlanner(const Documents& documents, const ExampleOptions& options, int64_t repetition,
                  int64_t document)
      : documents_(documents),
        options_(options),
        document_(document),
        room_(options.room()),
        sequence_(random::make_key(options.masking.seed, random::Purpose::kExamplePairs,
                                   static_cast<uint64_t>(repetition),
                                   static_cast<uint64_t>(document))) {}

  void plan(std::vector<ExamplePlan>& plans) {
    const int64_t end = begin_of(document_ + 1);
    for (int64_t first = begin_of(document_); first < end;) {
      const int64_t target =
          sequence_.uniform() < options_.short_seq_prob ? 1 + below(room_) : room_;
      const int64_t behind = segment_end(first, end, target);
      if (options_.next_sentence) {
        first = add_pair(plans, first, behind, target);
      } else {
        plans.push_back({.first = first,
                         .first_count = static_cast<int32_t>(behind - first),
                         .label = kIgnoredLabel});
        first = behind;
      }
    }
  }

 private:
  [[nodiscard]] int64_t below(int64_t bound) {
    return static_cast<int64_t>(sequence_.below(static_cast<uint32_t>(bound)));
  }
  [[nodiscard]] int64_t begin_of(int64_t document) const {
    return documents_.documents[static_cast<size_t>(document)];
  }

  // Behind the sentence that reaches `target`, or before the first that has no room.
  [[nodiscard]] int64_t segment_end(int64_t first, int64_t end, int64_t target) const {
    int64_t behind = first;
    for (int64_t length = 0; behind < end && length < target; ++behind) {
      length += documents_.length(behind);
      if (length > room_) break;
    }
    return behind;
  }

  // Returns where the next example begins.
  int64_t add_pair(std::vector<ExamplePlan>& plans, int64_t first, int64_t behind, int64_t target) {
    const int64_t sentences = behind - first;
    const int64_t split = first + (sentences > 1 ? 1 + below(sentences - 1) : 1);
    ExamplePlan plan{.first = first, .first_count = static_cast<int32_t>(split - first)};
    const auto first_tokens = static_cast<int64_t>(documents_.tokens(first, split).size());
    if (split < behind && sequence_.uniform() >= 0.5) {
      plan.other = split;
      plan.other_count = static_cast<int32_t>(behind - split);
      plan.kept = static_cast<int32_t>(documents_.tokens(split, behind).size());
      plan.label = PretrainingExample::kIsNext;
      plans.push_back(plan);
      return behind;
    }
    plan.label = PretrainingExample::kIsRandom;
    take_other_document(plan, target - first_tokens, room_ - first_tokens);
    plans.push_back(plan);
    return split;  // what was not used begins the next example
  }

  void take_other_document(ExamplePlan& plan, int64_t wanted, int64_t room) {
    int64_t other = below(documents_.size() - 1);
    if (other >= document_) ++other;
    const int64_t end = begin_of(other + 1);
    plan.other = begin_of(other) + below(end - begin_of(other));
    int64_t behind = plan.other;
    int64_t length = 0;
    do {
      length += documents_.length(behind++);
    } while (behind < end && length < wanted);
    plan.other_count = static_cast<int32_t>(behind - plan.other);
    plan.kept = static_cast<int32_t>(std::min(length, room));
  }

  const Documents& documents_;
  const ExampleOptions& options_;
  int64_t document_;
  int64_t room_;
  random::Sequence sequence_;
};

}  // namespace

std::vector<ExamplePlan> plan_examples(const Documents& documents, const ExampleOptions& options) {
  const auto most = static_cast<size_t>(options.max_samples.value_or(INT64_MAX));
  std::vector<ExamplePlan> plans;
  for (int64_t repetition = 0; repetition < options.dupe_factor; ++repetition) {
    for (int64_t document = 0; document < documents.size(); ++document) {
      if (plans.size() >= most) break;
      DocumentPlanner(documents, options, repetition, document).plan(plans);
    }
  }
  if (plans.size() > most) plans.resize(most);
  plans.shrink_to_fit();
  return plans;
}

}  // namespace finetune
