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
#include "train/assemble.h"
#include "train/run_storage.h"

namespace finetune {

// How many steps a run has and how often something is due, resolved from keys that may be ratios.
struct Plan {
  int64_t max_steps = 0;
  int64_t warmup_steps = 0;
  int64_t logging_steps = 0;
  int64_t eval_steps = 0;  // 0: never by steps
  int64_t save_steps = 0;
  int64_t num_train_epochs = 0;
};

// Optimizer states that ranks divide among themselves (zero_stage: 1); empty where each has all.
struct DividedStates {
  std::unique_ptr<OwnedTensors> weights;  // brings the weights that each rank updates to the others
  std::unique_ptr<StateGather> gather;    // brings the states to the checkpoint of rank 0
};

// One training run: its configuration, its parts, and how far it is. The objects that the trainer
// consists of share it. Its members change at update boundaries only, and every rank has the same
// values unless a comment says otherwise.
struct TrainingRun {
  // Throws Error(kConfig) where the keys exclude each other with this number of ranks. The
  // arguments must outlive it. A collective.
  TrainingRun(const LoadedConfig& config, const RunOptions& options, RunStorage& storage,
              Parts& parts, ProgressDisplay& progress);

  // Divides the update, keeping a smaller `split.rows` that memory asked for, and resolves what
  // depends on it: the loader, the plan, the schedule.
  void prepare(const BatchSplit& asked);
  // Again where `split` has changed. Requires: no loader lives.
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
  // The step of the next save by the keys, after this one.
  [[nodiscard]] std::optional<int64_t> next_save() const;
  // The step whose weights are in memory.
  [[nodiscard]] int64_t weights_step() const { return loaded_best_step.value_or(state.step); }
  // The samples of the update at this position.
  [[nodiscard]] LeftOut samples_of_update(const Position& position) const;

  // Whether bits must not depend on the number of threads (full_determinism on the CPU).
  [[nodiscard]] bool is_one_threaded() const { return parts.batches_at_once > 0; }
  // Whether an update is a sum over logical shards (full_determinism), each with its gradients.
  [[nodiscard]] bool sums_shards() const;
  [[nodiscard]] int64_t bucket_bytes() const;  // of gradients, sent between ranks at a time
  // What of weights and optimizer states is NaN or Inf, in any rank; empty: nothing. A collective.
  [[nodiscard]] std::string nonfinite_state() const;

  const LoadedConfig& config;
  const TrainingArgs& args;
  const RunOptions& options;
  RunStorage& storage;
  Parts& parts;
  ProgressDisplay& progress;
  FileSystem& files;

  std::shared_ptr<const SampleStream> stream;  // the training data where they are streamed
  DividedStates divided;
  Plan plan;
  BatchSplit split;  // rows: per_device_train_batch_size, or fewer where memory did not suffice
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Schedule> schedule;
  std::optional<LossScaler> scaler;  // with fp16
  RunState state;
  TrainerState trainer_state;
  std::optional<int64_t> loaded_best_step;  // the weights are those of this earlier step
  bool has_new_best = false;                // the evaluation of this step was the best one so far
  bool is_same_device = false;              // as in the session before
};

}  // namespace finetune
