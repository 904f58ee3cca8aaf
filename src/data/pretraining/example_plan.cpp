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
  using Place = ExamplePlans::Place;

  // Starts at the first example.
  ExampleCursor(const Documents& documents, const ExampleOptions& options)
      : documents_(documents), options_(options), room_(options.room()) {
    if (documents_.size() > 0) begin_document();
  }
  ExampleCursor(const Documents& documents, const ExampleOptions& options, const Place& place)
      : documents_(documents), options_(options), room_(options.room()), place_(place) {}

  [[nodiscard]] bool at_end() const {
    return place_.repetition == options_.dupe_factor || documents_.size() == 0;
  }
  [[nodiscard]] const Place& place() const { return place_; }

  // Requires: not at the end.
  ExamplePlan next() {
    const int64_t first = place_.first;
    const int64_t end = begin_of(place_.document + 1);
    const int64_t target =
        place_.sequence.uniform() < options_.short_seq_prob ? 1 + below(room_) : room_;
    const int64_t behind = segment_end(first, end, target);
    ExamplePlan plan;
    if (options_.next_sentence) {
      plan = make_pair(first, behind, target);
    } else {
      plan = {.first = first,
              .first_count = static_cast<int32_t>(behind - first),
              .label = kIgnoredLabel};
      place_.first = behind;
    }
    if (place_.first == end) go_on();
    return plan;
  }

 private:
  [[nodiscard]] int64_t below(int64_t bound) {
    return static_cast<int64_t>(place_.sequence.below(static_cast<uint32_t>(bound)));
  }
  [[nodiscard]] int64_t begin_of(int64_t document) const {
    return documents_.documents[static_cast<size_t>(document)];
  }

  // Returns the end of the sentence that reaches `target`, or the start of the first one that does
  // not fit.
  [[nodiscard]] int64_t segment_end(int64_t first, int64_t end, int64_t target) const {
    int64_t behind = first;
    for (int64_t length = 0; behind < end && length < target; ++behind) {
      length += documents_.length(behind);
      if (length > room_) break;
    }
    return behind;
  }

  // Moves to the next document, or to the first one of the next repetition.
  void go_on() {
    if (++place_.document == documents_.size()) {
      place_.document = 0;
      ++place_.repetition;
    }
    begin_document();
  }
  void begin_document() {
    place_.first = begin_of(place_.document);
    place_.sequence = random::Sequence(random::make_key(
        options_.masking.seed, random::Purpose::kExamplePairs,
        static_cast<uint64_t>(place_.repetition), static_cast<uint64_t>(place_.document)));
  }

  ExamplePlan make_pair(int64_t first, int64_t behind, int64_t target) {
    const int64_t sentences = behind - first;
    const int64_t split = first + (sentences > 1 ? 1 + below(sentences - 1) : 1);
    ExamplePlan plan{.first = first, .first_count = static_cast<int32_t>(split - first)};
    const auto first_tokens = static_cast<int64_t>(documents_.tokens(first, split).size());
    if (split < behind && place_.sequence.uniform() >= 0.5) {
      plan.other = split;
      plan.other_count = static_cast<int32_t>(behind - split);
      plan.kept = static_cast<int32_t>(documents_.tokens(split, behind).size());
      plan.label = PretrainingExample::kIsNext;
      place_.first = behind;
      return plan;
    }
    plan.label = PretrainingExample::kIsRandom;
    take_other_document(plan, target - first_tokens, room_ - first_tokens);
    place_.first = split;  // sentences not used begin the next example
    return plan;
  }

  void take_other_document(ExamplePlan& plan, int64_t wanted, int64_t room) {
    int64_t other = below(documents_.size() - 1);
    if (other >= place_.document) ++other;
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
  int64_t room_;
  Place place_;
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
      const Place& place = cursor.place();
      places_.push_back(place);
      step.reach(place.repetition * documents.size() + place.document);
    }
    visit(cursor.next());
  }
  step.reach(all);
  places_.shrink_to_fit();
}

ExamplePlan ExamplePlans::at(int64_t index) const {
  FT_CHECK(index >= 0 && index < size_, "example index out of range");
  ExampleCursor cursor(documents_, options_, places_[static_cast<size_t>(index / kStride)]);
  for (int64_t skipped = 0; skipped < index % kStride; ++skipped) {
    static_cast<void>(cursor.next());
  }
  return cursor.next();
}

int64_t ExamplePlans::memory_bytes() const {
  return std::ssize(places_) * static_cast<int64_t>(sizeof(Place));
}

}  // namespace finetune
