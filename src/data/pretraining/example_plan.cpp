// SPDX-License-Identifier: MIT
#include "data/pretraining/example_plan.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/random.h"

namespace finetune {
namespace {

constexpr int64_t kStride = 16;

// Iterates over the examples, splitting documents as in Devlin et al. 2019, section A.2, and
// create_pretraining_data.
class ExampleCursor {
 public:
  using Position = ExamplePlans::Position;

  // Starts at the first example.
  ExampleCursor(const Documents& documents, const ExampleOptions& options)
      : documents_(documents), options_(options), room_(options.room()) {
    if (documents_.size() > 0) begin_document();
  }
  ExampleCursor(const Documents& documents, const ExampleOptions& options, const Position& position)
      : documents_(documents), options_(options), room_(options.room()), position_(position) {}

  [[nodiscard]] bool at_end() const {
    return position_.repetition == options_.dupe_factor || documents_.size() == 0;
  }
  [[nodiscard]] const Position& position() const { return position_; }

  // Requires: not at the end.
  ExamplePlan next() {
    const int64_t first = position_.first;
    const int64_t end = begin_of(position_.document + 1);
    const int64_t target =
        position_.sequence.uniform() < options_.short_seq_prob ? 1 + below(room_) : room_;
    const int64_t after = segment_end(first, end, target);
    ExamplePlan plan;
    if (options_.next_sentence) {
      plan = make_pair(first, after, target);
    } else {
      plan = {.first = first,
              .first_count = static_cast<int32_t>(after - first),
              .label = kIgnoredLabel};
      position_.first = after;
    }
    if (position_.first == end) continued();
    return plan;
  }

 private:
  [[nodiscard]] int64_t below(int64_t bound) {
    return static_cast<int64_t>(position_.sequence.below(static_cast<uint32_t>(bound)));
  }
  [[nodiscard]] int64_t begin_of(int64_t document) const {
    return documents_.documents[static_cast<size_t>(document)];
  }

  // Returns the end of the sentence that reaches `target`, or the start of the first one that does
  // not fit.
  [[nodiscard]] int64_t segment_end(int64_t first, int64_t end, int64_t target) const {
    int64_t after = first;
    for (int64_t length = 0; after < end && length < target; ++after) {
      length += documents_.length(after);
      if (length > room_) break;
    }
    return after;
  }

  // Moves to the next document, or to the first one of the next repetition.
  void continued() {
    if (++position_.document == documents_.size()) {
      position_.document = 0;
      ++position_.repetition;
    }
    begin_document();
  }
  void begin_document() {
    position_.first = begin_of(position_.document);
    position_.sequence = random::Sequence(random::make_key(
        options_.masking.seed, random::Purpose::kExamplePairs,
        static_cast<uint64_t>(position_.repetition), static_cast<uint64_t>(position_.document)));
  }

  ExamplePlan make_pair(int64_t first, int64_t after, int64_t target) {
    const int64_t sentences = after - first;
    const int64_t split = first + (sentences > 1 ? 1 + below(sentences - 1) : 1);
    ExamplePlan plan{.first = first, .first_count = static_cast<int32_t>(split - first)};
    const auto first_tokens = static_cast<int64_t>(documents_.tokens(first, split).size());
    if (split < after && position_.sequence.uniform() >= 0.5) {
      plan.other = split;
      plan.other_count = static_cast<int32_t>(after - split);
      plan.kept = static_cast<int32_t>(documents_.tokens(split, after).size());
      plan.label = PretrainingExample::kIsNext;
      position_.first = after;
      return plan;
    }
    plan.label = PretrainingExample::kIsRandom;
    take_other_document(plan, target - first_tokens, room_ - first_tokens);
    position_.first = split;  // sentences not used begin the next example
    return plan;
  }

  void take_other_document(ExamplePlan& plan, int64_t wanted, int64_t room) {
    int64_t other = below(documents_.size() - 1);
    if (other >= position_.document) ++other;
    const int64_t end = begin_of(other + 1);
    plan.other = begin_of(other) + below(end - begin_of(other));
    int64_t after = plan.other;
    int64_t length = 0;
    do {
      length += documents_.length(after++);
    } while (after < end && length < wanted);
    plan.other_count = static_cast<int32_t>(after - plan.other);
    plan.kept = static_cast<int32_t>(std::min(length, room));
  }

  const Documents& documents_;
  const ExampleOptions& options_;
  int64_t room_;
  Position position_;
};

}  // namespace

ExamplePlans::ExamplePlans(const Documents& documents, const ExampleOptions& options,
                           const std::function<void(const ExamplePlan&)>& visit,
                           const ShowStep& show)
    : documents_(documents), options_(options) {
  const int64_t most = options.max_samples.value_or(INT64_MAX);
  const int64_t all = documents.size() * options.dupe_factor;
  LongStep step({.phase = "plan examples", .doing = "planning examples", .unit = "document"}, all,
                show);
  for (ExampleCursor cursor(documents, options); !cursor.at_end() && size_ < most; ++size_) {
    if (size_ % kStride == 0) {
      const Position& position = cursor.position();
      positions_.push_back(position);
      step.reach(position.repetition * documents.size() + position.document);
    }
    visit(cursor.next());
  }
  step.reach(all);
  positions_.shrink_to_fit();
}

ExamplePlan ExamplePlans::at(int64_t index) const {
  FT_CHECK(index >= 0 && index < size_, "example index out of range");
  ExampleCursor cursor(documents_, options_, positions_[static_cast<size_t>(index / kStride)]);
  for (int64_t skipped = 0; skipped < index % kStride; ++skipped) {
    static_cast<void>(cursor.next());
  }
  return cursor.next();
}

int64_t ExamplePlans::memory_bytes() const {
  return std::ssize(positions_) * static_cast<int64_t>(sizeof(Position));
}

}  // namespace finetune
