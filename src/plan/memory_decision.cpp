// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/plan/memory_text.h"

namespace finetune {
namespace {

// The storage formats; other formats change results a little.
struct Formats {
  GradientFormat gradients;
  WeightFormat weights;
  OptimizerChoice optimizer;
  bool four_bits = false;
};

bool is_one_threaded(const MemoryWorkload& workload) {
  return workload.sums_shards && !workload.is_device;
}

bool is_set(const LoadedConfig& config, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return config.is_set(key); });
}

// Returns the formats that the keys ask for, then those with gradients, states or both in fewer
// bits (the faster first), then those with weights in fewer bits too; where the base may have
// `four_bits`, then the same with them.
std::vector<std::vector<Formats>> allowed_formats(const LoadedConfig& config,
                                                  const MemoryChoices& asked, bool four_bits) {
  std::vector<GradientFormat> gradients = {asked.gradients};
  if (!is_set(config, {"grad_accum_dtype"})) gradients.push_back(GradientFormat::kBFloat16);
  std::vector<OptimizerChoice> optimizers = {asked.optimizer};
  if (!is_set(config, {"optim", "optim_args"})) {
    optimizers.push_back({.kind = "adamw_companded_8bit"});
  }
  std::vector<WeightFormat> weights = {asked.weights};
  if (!is_set(config, {"param_dtype"})) weights.push_back(WeightFormat::kSplit);
  const Formats first = {asked.gradients, asked.weights, asked.optimizer};
  std::vector<std::vector<Formats>> steps = {{first}};
  for (const WeightFormat weight : weights) {
    steps.emplace_back();
    for (const OptimizerChoice& optimizer : optimizers) {
      for (const GradientFormat gradient : gradients) {
        steps.back().push_back({gradient, weight, optimizer});
      }
    }
  }
  if (four_bits) {
    const std::vector<std::vector<Formats>> others = steps;
    for (std::vector<Formats> step : others) {
      for (Formats& formats : step) formats.four_bits = true;
      steps.push_back(step);
    }
  }
  return steps;
}

std::vector<int64_t> allowed_cuts(const LoadedConfig& config, const MemoryChoices& asked,
                                  int64_t effective_batch) {
  // A gradient that is freed at once cannot be accumulated over micro-batches.
  if (asked.optimizer_in_backward) return {effective_batch};
  const int64_t most =
      is_set(config, {"per_device_train_batch_size"}) ? asked.micro_batch : effective_batch;
  std::vector<int64_t> sizes;
  for (int64_t size = std::min(most, effective_batch); size > 0; --size) {
    if (effective_batch % size == 0) sizes.push_back(size);
  }
  return sizes;
}

std::vector<ActivationCheckpointing> allowed_checkpointings(const LoadedConfig& config,
                                                            const MemoryChoices& asked) {
  if (is_set(config, {"activation_checkpointing", "gradient_checkpointing"})) {
    return {asked.checkpointing};
  }
  return {{}, {.enabled = true, .selective = true}, {.enabled = true}};
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

// All choices that give the same results with these formats.
std::vector<Candidate> candidates_of(const MemoryWorkload& workload, const LoadedConfig& config,
                                     MemoryChoices choices, int64_t budget) {
  std::vector<Candidate> found;
  const MemoryChoices asked = choices;
  for (const int64_t cut : allowed_cuts(config, asked, workload.effective_batch)) {
    choices.micro_batch = cut;
    for (const auto& checkpointing : allowed_checkpointings(config, asked)) {
      choices.checkpointing = checkpointing;
      for (const int64_t rows : {128, 64, 32}) {
        if (rows != 128 && workload.head) continue;
        choices.head_rows_per_chunk = rows;
        Candidate& one = found.emplace_back(Candidate{.workload = workload, .choices = choices});
        if (is_one_threaded(workload)) {
          one.workload.batches_at_once = largest_batches_at_once(workload, choices, budget);
        }
        one.time = relative_time(one.workload, choices);
      }
    }
  }
  return found;
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

MemoryDecision decide_memory(const MemoryWorkload& workload, const LoadedConfig& config,
                             int64_t budget) {
  MemoryDecision decision{.asked = choices_of(config.args),
                          .budget = budget,
                          .effective_batch = workload.effective_batch};
  Search found;
  const auto steps = allowed_formats(config, decision.asked, workload.four_bits.has_value());
  for (const std::vector<Formats>& step : steps) {
    std::vector<Candidate> candidates;
    for (const Formats& formats : step) {
      MemoryChoices choices = decision.asked;
      choices.gradients = formats.gradients;
      choices.weights = formats.weights;
      choices.optimizer = formats.optimizer;
      choices.four_bits = formats.four_bits;
      const std::vector<Candidate> some = candidates_of(workload, config, choices, budget);
      candidates.insert(candidates.end(), some.begin(), some.end());
    }
    search(std::move(candidates), budget, found);
    if (!found.fastest) continue;
    decision.choices = *found.fastest;
    decision.predicted = found.predicted;
    return decision;
  }
  throw Error(ErrorKind::kConfig,
              config.where("memory_budget") + ": memory_budget: " + mebibytes(budget) +
                  " is not enough; the other keys need at least " + mebibytes(found.least) +
                  ": set memory_budget to that, lower max_seq_length, or leave out keys of "
                  "formats, recomputation and batch size");
}

}  // namespace finetune
