// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/load.h"
#include "finetune/config/techniques.h"
#include "finetune/kernels/parameter_store.h"
#include "finetune/kernels/precision.h"
#include "finetune/model/model.h"

// What a run needs of memory, before anything is allocated: what layers keep by a dry run of the
// model, the rest by formulas of what the implementation allocates. All sizes are bytes.
namespace finetune {

// The prediction is good to a tenth; what is chosen by it has to stay inside all the same.
constexpr double kMemoryMargin = 0.05;

// What is trained: given by model, task and data.
struct MemoryWorkload {
  ModelConfig model;
  std::optional<Head> head;       // nothing: masked language modelling
  int64_t choices = 1;            // rows of a sample
  int64_t length = 512;           // tokens of the longest row
  double predicted_share = 0.15;  // of words: tokens that are predicted
  bool scores_in_chunks = false;  // evaluation makes head_rows_per_chunk logits at a time, not all
  int64_t effective_batch = 8;    // samples of an update in one process
  int64_t eval_batch = 0;         // samples evaluated at a time; 0: nothing is evaluated
  int64_t program = 0;            // libtorch and the program, beside all that is planned
  int64_t start = 0;              // the most that starting takes, before the model is made
  int64_t data = 0;               // samples and tokenizer, in host memory
  bool is_device = false;         // weights and everything else are in an accelerator's memory
  bool has_kernels = false;       // of that device; else torch's operators compute everything
  int64_t threads = 1;            // of the CPU's kernels
  int64_t processes = 1;          // that train together
  bool divides_states = false;    // among them (zero_stage: 1)
  bool sums_shards = false;       // each with its own gradients (full_determinism)
  int64_t batches_at_once = 1;    // each computed by one thread (full_determinism on the CPU)
};

// How it is trained: what keys decide, or memory_budget.
struct MemoryChoices {
  int64_t micro_batch = 8;  // samples at a time, a divisor of the effective batch
  ActivationCheckpointing checkpointing = {};
  int64_t head_rows_per_chunk = 128;
  WeightFormat weights = WeightFormat::kFloat32;
  GradientFormat gradients = GradientFormat::kFloat32;
  Precision precision = Precision::kFloat32;
  OptimizerChoice optimizer = {};
  bool optimizer_in_backward = false;

  friend bool operator==(const MemoryChoices&, const MemoryChoices&) = default;
};

// Rows of logits at a time. A device with kernels takes four times as many: each chunk reads and
// writes the whole gradient of the vocabulary's matrix, and has its launches.
[[nodiscard]] constexpr int64_t head_rows(const MemoryChoices& choices, bool has_kernels) {
  return choices.head_rows_per_chunk * (has_kernels ? 4 : 1);
}

struct MemoryParts {
  int64_t program = 0;  // libtorch, the program, what libraries keep
  int64_t data = 0;
  int64_t weights = 0;
  int64_t gradients = 0;    // the most that is alive at once
  int64_t states = 0;       // of the optimizer
  int64_t activations = 0;  // kept for the backward pass
  int64_t head = 0;
  int64_t temporaries = 0;  // of layers, evaluation and update, beyond what the head takes
  int64_t host = 0;         // on a device: additional host memory, not part of peak()

  [[nodiscard]] int64_t peak() const;
};

[[nodiscard]] MemoryParts predict_memory(const MemoryWorkload& workload,
                                         const MemoryChoices& choices);

// The most samples at a time with which the peak stays within `bytes`; 0: not even one does.
[[nodiscard]] int64_t largest_micro_batch(const MemoryWorkload& workload, MemoryChoices choices,
                                          int64_t bytes);

// With full_determinism on the CPU one thread computes a micro-batch: the most that can be computed
// at once, by as many threads, with a peak within `bytes` less the margin. At least 1.
[[nodiscard]] int64_t largest_batches_at_once(MemoryWorkload workload, const MemoryChoices& choices,
                                              int64_t bytes);

// What the keys say, memory_budget aside.
[[nodiscard]] MemoryChoices choices_of(const TrainingArgs& args);

// What memory_budget made of a configuration.
struct MemoryDecision {
  MemoryChoices asked = {};    // by the keys
  MemoryChoices choices = {};  // picked
  int64_t budget = 0;
  int64_t effective_batch = 0;
  int64_t predicted = 0;  // peak

  // What was picked, and which keys forbid what deviates.
  [[nodiscard]] std::string line() const;
  // Whether a resumed run reuses it instead of deciding again: the keys are unchanged, none of
  // those that it chose was set meanwhile, the batch is the same, and it stays below the current
  // budget.
  [[nodiscard]] bool is_for(const LoadedConfig& config, int64_t batch) const;
  // The configuration with the choices as its keys, as checkpoints record it and messages compare
  // it: batch, accumulation, checkpointing, formats and optimizer. The model is made from `choices`
  // themselves; head_rows_per_chunk has no key.
  [[nodiscard]] LoadedConfig recorded_in(const LoadedConfig& config) const;

  // For finetune_state.json.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  // `where` starts every message. Throws Error(kData).
  [[nodiscard]] static MemoryDecision from_json(const nlohmann::ordered_json& json,
                                                const std::string& where);
};

// Keeps the effective batch and what the user set, and picks the rest so that the predicted peak
// stays below `budget`: first what gives the same results (the cut of the batch, what is computed
// again, the head's chunks) in the order of time, then what deviates (bfloat16 gradients or 8-bit
// states, whichever takes less time; then split weights). Throws Error(kConfig) with the least that
// can be reached.
[[nodiscard]] MemoryDecision decide_memory(const MemoryWorkload& workload,
                                           const LoadedConfig& config, int64_t budget);

// The table of a plan: a line for each part.
[[nodiscard]] std::vector<std::pair<std::string, int64_t>> named_parts(const MemoryParts& parts);

}  // namespace finetune
