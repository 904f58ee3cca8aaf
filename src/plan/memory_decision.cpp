// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/plan/memory_text.h"
#include "plan/memory_techniques.h"

namespace finetune {
namespace {

bool is_one_threaded(const MemoryWorkload& workload) {
  return workload.sums_shards && !workload.is_device;
}

// All combinations of `choices` with the values that the techniques of a stage may have. The first
// technique's values change fastest.
std::vector<MemoryChoices> combined(std::vector<MemoryChoices> choices, Stage stage,
                                    const MemoryWorkload& workload, const MemoryOptions& options) {
  for (const MemoryTechnique& technique : memory_techniques()) {
    if (technique.stage != stage || options.is_fixed(technique.name)) continue;
    std::vector<MemoryChoices> values = {choices.front()};
    technique.others(workload, values);
    std::vector<MemoryChoices> all;
    for (const MemoryChoices& value : values) {
      for (MemoryChoices one : choices) {
        technique.copy(value, one);
        all.push_back(std::move(one));
      }
    }
    choices = std::move(all);
  }
  return choices;
}

// Formats in the order in which they are tried: those that the keys ask for, then those with
// gradients, states or both in fewer bits (the faster first), then those with weights in fewer bits
// too; where the base may have four bits, then the same with them.
std::vector<std::vector<MemoryChoices>> allowed_formats(const MemoryWorkload& workload,
                                                        const MemoryOptions& options) {
  std::vector<std::vector<MemoryChoices>> steps = {{options.asked}};
  for (const MemoryChoices& one : combined({options.asked}, Stage::kWeights, workload, options)) {
    steps.push_back(combined({one}, Stage::kFormats, workload, options));
  }
  const std::vector<std::vector<MemoryChoices>> whole = steps;
  for (const std::vector<MemoryChoices>& step : whole) {
    const std::vector<MemoryChoices> both = combined(step, Stage::kBase, workload, options);
    if (both.size() == step.size()) continue;
    steps.emplace_back(both.begin() + static_cast<int64_t>(step.size()), both.end());
  }
  return steps;
}

std::vector<int64_t> allowed_cuts(const MemoryOptions& options, int64_t effective_batch) {
  // A gradient that is freed at once cannot be accumulated over micro-batches.
  if (options.asked.optimizer_in_backward) return {effective_batch};
  const int64_t most =
      options.is_fixed("micro_batch") ? options.asked.micro_batch : effective_batch;
  std::vector<int64_t> sizes;
  for (int64_t size = std::min(most, effective_batch); size > 0; --size) {
    if (effective_batch % size == 0) sizes.push_back(size);
  }
  return sizes;
}

// Time of an update relative to one large batch: recomputation, and the fixed cost of each
// micro-batch and each chunk of the head. Reading weights and adding to gradients takes as long as
// computing about 30 tokens on a CPU, about 1000 on a device. If each micro-batch has one thread,
// some threads are idle in the last round.
double relative_time(const MemoryWorkload& workload, const MemoryChoices& choices) {
  const double tokens =
      static_cast<double>(choices.micro_batch * workload.choices * workload.length);
  const ActivationCheckpointing& again = choices.checkpointing;
  const double computed = !again.enabled ? 1.0 : again.selective ? 1.06 : 1.33;
  const double chunks = 0.01 * (128.0 / static_cast<double>(choices.head_rows_per_chunk) - 1.0);
  const double time = computed + (workload.is_device ? 1000.0 : 30.0) / tokens + chunks;
  if (!is_one_threaded(workload)) return time;
  const int64_t shards = workload.effective_batch / choices.micro_batch;
  const int64_t rounds = (shards + workload.batches_at_once - 1) / workload.batches_at_once;
  return time * static_cast<double>(workload.threads * rounds) / static_cast<double>(shards);
}

// Choices that give the same results as others of the same formats, and the workload with them.
struct Candidate {
  MemoryWorkload workload;
  MemoryChoices choices;
  double time = 0.0;
  std::optional<int64_t> predicted = std::nullopt;

  // Predicted once: a prediction runs an update without data.
  int64_t peak() {
    if (!predicted) predicted = predict_memory(workload, choices).peak();
    return *predicted;
  }
  // With the margin that choices leave.
  int64_t peak_with_margin() {
    return static_cast<int64_t>(static_cast<double>(peak()) * (1.0 + kMemoryMargin));
  }
};

// Adds all choices that give the same results with these formats.
void add_candidates(const MemoryWorkload& workload, const MemoryOptions& options,
                    MemoryChoices choices, int64_t budget, std::vector<Candidate>& found) {
  for (const int64_t cut : allowed_cuts(options, workload.effective_batch)) {
    choices.micro_batch = cut;
    for (const MemoryChoices& same : combined({choices}, Stage::kEqualResults, workload, options)) {
      Candidate& one = found.emplace_back(Candidate{.workload = workload, .choices = same});
      if (is_one_threaded(workload)) {
        one.workload.batches_at_once = largest_batches_at_once(workload, same, budget);
      }
      one.time = relative_time(one.workload, same);
    }
  }
}

struct Search {
  std::optional<MemoryChoices> fastest;
  int64_t predicted = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
};

// Whether two candidates differ in the size of the micro-batch alone.
bool are_alike(const Candidate& a, const Candidate& b) {
  MemoryChoices resized = a.choices;
  resized.micro_batch = b.choices.micro_batch;
  return resized == b.choices;
}

// The fastest choices that fit, of these. Where none does, the least that any needs: with the
// fewest rows of the head, of the smallest micro-batch or of the largest, whose gradients need not
// be kept.
void search(std::vector<Candidate> candidates, int64_t budget, Search& found) {
  const auto rows_of = [](const Candidate& one) { return one.choices.head_rows_per_chunk; };
  const auto batch_of = [](const Candidate& one) { return one.choices.micro_batch; };
  const auto [fewest_rows, all_rows] = std::ranges::minmax(candidates, {}, rows_of);
  const auto [smallest, largest] = std::ranges::minmax(candidates, {}, batch_of);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (Candidate& one : candidates) {
    const bool is_end = batch_of(one) == batch_of(smallest) || batch_of(one) == batch_of(largest);
    if (is_end && rows_of(one) == rows_of(fewest_rows))
      least = std::min(least, one.peak_with_margin());
  }
  found.least = std::min(found.least, least);
  if (least > budget) return;
  std::ranges::stable_sort(candidates, {}, &Candidate::time);
  std::vector<const Candidate*> too_large;
  for (Candidate& one : candidates) {
    // More rows take more, but for those of the whole update.
    const bool is_larger = std::ranges::any_of(too_large, [&](const Candidate* other) {
      return batch_of(one) > batch_of(*other) && batch_of(one) < one.workload.effective_batch &&
             are_alike(one, *other);
    });
    if (is_larger) continue;
    if (one.peak_with_margin() > budget) {
      too_large.push_back(&one);
      continue;
    }
    found.fastest = one.choices;
    found.predicted = one.peak();
    return;
  }
}

}  // namespace

MemoryDecision decide_memory(const MemoryWorkload& workload, const MemoryOptions& options,
                             int64_t budget) {
  Search found;
  for (const std::vector<MemoryChoices>& step : allowed_formats(workload, options)) {
    std::vector<Candidate> candidates;
    for (const MemoryChoices& formats : step) {
      add_candidates(workload, options, formats, budget, candidates);
    }
    search(std::move(candidates), budget, found);
    if (!found.fastest) continue;
    return {.asked = options.asked,
            .choices = *found.fastest,
            .budget = budget,
            .effective_batch = workload.effective_batch,
            .predicted = found.predicted};
  }
  throw Error(ErrorKind::kConfig,
              options.where + ": memory_budget: " + mebibytes(budget) +
                  " is not enough; the other keys need at least " + mebibytes(found.least) +
                  ": set memory_budget to that, lower max_seq_length, or leave out keys of "
                  "formats, recomputation and batch size");
}

}  // namespace finetune
