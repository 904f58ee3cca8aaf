// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "finetune/config/batch_split.h"
#include "finetune/config/load.h"
#include "finetune/data/sample_stream.h"
#include "finetune/distributed/owned_tensors.h"
#include "finetune/optim/loss_scaler.h"
#include "finetune/state/divergence.h"
#include "finetune/state/metrics_log.h"
#include "finetune/state/state_gather.h"
#include "finetune/train/run.h"
#include "train/folder/run_storage.h"
#include "train/setup/assemble.h"

namespace finetune {

// The number of steps and the intervals of a run, resolved from keys that may be ratios.
struct Plan {
  int64_t max_steps = 0;
  int64_t warmup_steps = 0;
  int64_t logging_steps = 0;
  int64_t eval_steps = 0;  // 0: never by steps
  int64_t save_steps = 0;
  int64_t num_train_epochs = 0;
};

// Optimizer states divided among ranks; empty if each rank has all. Where parameters are divided
// (zero_stage: 2, 3) their states are, too, and no weights are sent after an update.
struct DividedStates {
  std::unique_ptr<OwnedTensors> weights;  // sends the weights that each rank updates to the others
  std::unique_ptr<StateGather> gather;    // collects what rank 0 writes
};

// One training run: its configuration, its parts and its progress. The objects of the trainer share
// it. Members change only at update boundaries, and all ranks have the same values unless a comment
// says otherwise.
struct TrainingRun {
  // Throws Error(kConfig) if keys exclude each other with this number of ranks. The arguments must
  // outlive it. A collective.
  TrainingRun(const LoadedConfig& config, const RunOptions& options, RunStorage& storage,
              Parts& parts, ProgressDisplay& progress);

  // Divides the update, keeping a smaller `split.rows` set after OOM, and resolves what depends on
  // it: loader, plan, schedule.
  void prepare(const BatchSplit& asked);
  // Call again after `split` has changed. Requires: no loader exists.
  void make_loader();

  [[nodiscard]] World& world() const { return *parts.world; }
  [[nodiscard]] ParameterStore& store() const { return parts.model->store(); }
  [[nodiscard]] Environment environment() const;
  [[nodiscard]] DivergenceOptions divergence_options() const;
  [[nodiscard]] std::string checkpoint_path(int64_t step) const;

  [[nodiscard]] double epoch() const;  // as transformers counts it
  [[nodiscard]] bool is_epoch_end() const;
  [[nodiscard]] bool is_last_step() const { return state.step >= plan.max_steps; }
  [[nodiscard]] bool log_is_due() const;
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool save_is_due() const;  // by the keys
  // Returns the step of the next save that the keys ask for, after this one.
  [[nodiscard]] std::optional<int64_t> next_save() const;
  // Returns the step of the weights in memory.
  [[nodiscard]] int64_t weights_step() const { return loaded_best_step.value_or(state.step); }
  // Returns the samples of the update at this position.
  [[nodiscard]] LeftOut samples_of_update(const Position& position) const;

  // Whether bits must not depend on the number of threads (full_determinism on the CPU).
  [[nodiscard]] bool is_one_threaded() const { return parts.batches_at_once > 0; }
  // Whether an update is a sum over logical shards with separate gradients (full_determinism).
  [[nodiscard]] bool sums_shards() const;
  [[nodiscard]] int64_t bucket_bytes() const;  // bytes of gradients that ranks send at a time
  // Returns which weights or optimizer states are NaN or Inf on any rank; empty: none. A
  // collective.
  [[nodiscard]] std::string nonfinite_state() const;

  const LoadedConfig& config;
  const TrainingArgs& args;
  const RunOptions& options;
  RunStorage& storage;
  Parts& parts;
  ProgressDisplay& progress;
  FileSystem& files;

  std::shared_ptr<const SampleStream> stream;  // the training data if they are streamed
  DividedStates divided;
  Plan plan;
  BatchSplit split;  // rows: per_device_train_batch_size, or fewer after OOM
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Schedule> schedule;
  std::optional<LossScaler> scaler;  // with fp16
  RunState state;
  TrainerState trainer_state;
  std::optional<int64_t> loaded_best_step;  // the weights are those of this earlier step
  bool has_new_best = false;                // this step's evaluation was the best so far
  bool is_same_device = false;              // as in the session before
};

// How transformers loads the result of a run: by AutoModel with this ending, as it is or as the
// base of an adapter.
struct LoadingClass {
  std::string ending;  // "ForCausalLM"
  bool has_peft_class =
      false;  // an adapter, which AutoPeftModel with the ending loads with its base
};
[[nodiscard]] LoadingClass loading_class(const TrainingRun& run);

}  // namespace finetune
