// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/techniques.h"
#include "finetune/kernels/precision.h"
#include "finetune/model/model.h"
#include "finetune/params/base_format.h"
#include "finetune/params/store.h"

// Predicts the memory of a run before anything is allocated: by an update on the meta device
// (src/plan/dry_update.h). All sizes are bytes.
namespace finetune {

struct LoadedConfig;

// Predictions are accurate to this share; choices leave about as much of the budget free.
constexpr double kMemoryMargin = 0.05;

// The workload: given by model, task and data.
struct MemoryWorkload {
  ModelConfig model;
  std::optional<Head> head;              // nullopt: masked language modelling
  std::vector<std::string> freeze = {};  // patterns of FrozenParameters
  BaseFormat base = {};                  // of the frozen base, if the model has an adapter
  // What base.matrices may become to save memory (load_in_4bit: auto).
  std::optional<WeightFormat> four_bits = {};
  int64_t choices = 1;               // rows per sample
  int64_t length = 512;              // tokens of the longest row
  double predicted_share = 0.15;     // share of the tokens that are predicted
  bool compares_sequences = false;   // the loss takes log probabilities of sequences
  bool computes_all_tokens = false;  // to the end of the last layer, as programs before 2026-12
  bool computes_reference = false;   // each update computes them without the adapter, too
  bool scores_in_chunks = false;     // evaluation makes head_rows_per_chunk logits at a time
  int64_t effective_batch = 8;       // samples of an update in one process
  int64_t eval_batch = 0;            // samples evaluated at a time; 0: nothing is evaluated
  int64_t program = 0;               // libtorch and the program, in addition to all that is planned
  int64_t start = 0;                 // peak of the startup, before the model is made
  int64_t data = 0;                  // samples and tokenizer, in host memory
  bool is_device = false;            // weights and everything else are in an accelerator's memory
  bool has_kernels = false;          // of that device; else torch's operators compute everything
  bool has_flash = false;            // of causal and long rows; see attention_in_use()
  bool has_tiles = false;            // of other rows in 16 bits; see has_tiled_attention()
  // Operators are compiled (compiles_shapes()): what one changes in place is there twice meanwhile.
  bool compiles = false;
  int64_t workspace = 0;              // of the device's library of matrix products
  int64_t threads = 1;                // of the CPU's kernels
  int64_t processes = 1;              // that train together (ranks)
  int64_t zero_stage = 0;             // what they divide
  int64_t bucket_bytes = 25'000'000;  // of gradients sent at a time
  bool sums_shards = false;           // each rank has its own gradients (full_determinism)
  int64_t batches_at_once = 1;        // each computed by one thread (full_determinism on the CPU)
};

// How the model is trained: decided by keys or by memory_budget.
struct MemoryChoices {
  int64_t micro_batch = 8;  // samples at a time, a divisor of the effective batch
  ActivationCheckpointing checkpointing = {};
  int64_t head_rows_per_chunk = 128;
  WeightFormat weights = WeightFormat::kFloat32;
  GradientFormat gradients = GradientFormat::kFloat32;
  Precision precision = Precision::kFloat32;
  OptimizerChoice optimizer = {};
  bool optimizer_in_backward = false;
  bool four_bits = false;  // the base's matrices have MemoryWorkload::four_bits

  friend bool operator==(const MemoryChoices&, const MemoryChoices&) = default;
};

// Rows of logits at a time. A device with kernels takes four times as many: each chunk reads and
// writes the whole gradient of the vocabulary's matrix, and has its launches.
[[nodiscard]] constexpr int64_t head_rows(const MemoryChoices& choices, bool has_kernels) {
  return choices.head_rows_per_chunk * (has_kernels ? 4 : 1);
}

// Which parameters the ranks of a workload divide, as rank 0.
[[nodiscard]] ShardingOptions sharding_of(const MemoryWorkload& workload);

struct MemoryParts {
  int64_t program = 0;  // libtorch, the program, what libraries keep
  int64_t data = 0;
  int64_t weights = 0;
  int64_t gradients = 0;    // largest amount alive at once
  int64_t states = 0;       // of the optimizer
  int64_t activations = 0;  // kept for the backward pass
  int64_t head = 0;
  int64_t temporaries = 0;  // of layers, evaluation and update, in excess of the head
  int64_t host = 0;         // on a device: additional host memory, not part of peak()

  [[nodiscard]] int64_t peak() const;
};

[[nodiscard]] MemoryParts predict_memory(const MemoryWorkload& workload,
                                         const MemoryChoices& choices);

// Returns the largest micro-batch whose peak fits in `bytes`; 0 if none does.
[[nodiscard]] int64_t largest_micro_batch(const MemoryWorkload& workload, MemoryChoices choices,
                                          int64_t bytes);

// Returns the longest row, of a ladder of lengths up to the model's, that trains alone in each of
// these numbers of bytes; 0 if none does.
[[nodiscard]] std::vector<int64_t> longest_rows(MemoryWorkload workload, MemoryChoices choices,
                                                const std::vector<int64_t>& bytes);

// With full_determinism on the CPU, one thread computes one micro-batch. Returns how many can be
// computed concurrently with a peak within `bytes` less the margin; at least 1.
[[nodiscard]] int64_t largest_batches_at_once(MemoryWorkload workload, const MemoryChoices& choices,
                                              int64_t bytes);

// What the keys say of memory.
struct MemoryOptions {
  MemoryChoices asked = {};             // without memory_budget
  std::optional<int64_t> budget = {};   // memory_budget
  std::vector<std::string> fixed = {};  // names of MemoryTechnique that the keys decide
  std::string where = {};               // where memory_budget is set: "run.yaml:12"

  [[nodiscard]] bool is_fixed(const std::string& technique) const;
};
[[nodiscard]] MemoryOptions memory_options(const LoadedConfig& config);
[[nodiscard]] MemoryChoices choices_of(const TrainingArgs& args);  // MemoryOptions::asked

// The choices that memory_budget made for a configuration.
struct MemoryDecision {
  MemoryChoices asked = {};    // given by the keys
  MemoryChoices choices = {};  // chosen
  int64_t budget = 0;
  int64_t effective_batch = 0;
  int64_t predicted = 0;  // peak

  // Describes the choices, and names the keys that forbid those that change results.
  [[nodiscard]] std::string line() const;
  // Whether a resumed run reuses the decision: the keys and the batch are unchanged, none of the
  // chosen keys was set meanwhile, and the peak is within the current budget.
  [[nodiscard]] bool is_for(const MemoryOptions& options, int64_t batch) const;
  // Sets the keys to the choices, as checkpoints record and messages compare them: batch,
  // accumulation, checkpointing, formats and optimizer. The model itself is made from `choices`,
  // because head_rows_per_chunk has no key.
  void record_in(TrainingArgs& args) const;

  // For finetune_state.json.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  // Throws Error(kData); `where` is the prefix of every message.
  [[nodiscard]] static MemoryDecision from_json(const nlohmann::ordered_json& json,
                                                const std::string& where);
};

// Keeps the effective batch and what the user set, and chooses the rest so that the predicted peak
// stays below `budget`: first choices that do not change results (micro-batch size, recomputation,
// chunks of the head), fastest first, then those that do (bfloat16 gradients or 8-bit states,
// whichever is faster; then split weights; last, where load_in_4bit allows it, four bits for the
// base). Throws Error(kConfig) with the smallest peak that is
// possible.
[[nodiscard]] MemoryDecision decide_memory(const MemoryWorkload& workload,
                                           const MemoryOptions& options, int64_t budget);

// Returns the table of a plan: a name and the bytes of each part.
[[nodiscard]] std::vector<std::pair<std::string, int64_t>> named_parts(const MemoryParts& parts);

}  // namespace finetune
