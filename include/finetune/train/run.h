// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/load.h"

namespace finetune {

class CheckpointPart;
class World;

struct RunOptions {
  bool restart = false;  // rename all checkpoints to .old-N and begin at step 0
  // Stop after this many steps as if by a signal: checkpoint saved, exit code 75.
  std::optional<int64_t> stop_at_step = {};
  // Called after every update, and for a run that is already finished.
  std::function<void(int64_t step)> on_step = {};
  std::function<void()> on_already_finished = {};
  // Checkpoint parts in addition to the run's (state/checkpoint_part.h).
  std::vector<std::shared_ptr<CheckpointPart>> more_parts = {};
  // The ranks that train together, including this one; null: a single process. All ranks call
  // run_training() with the same configuration.
  std::shared_ptr<World> world = {};
};

// Throws Error(kConfig) if keys exclude this number of processes, or the batch cannot be divided
// among them. Call it before anything is loaded or started.
void check_processes(const LoadedConfig& config, int64_t processes);

// Throws Error(kConfig) if training would overwrite its configuration or the model it starts from:
// output_dir or mirror_dir is their folder, by whatever path. Call it before anything is written.
void check_starting_folder(const LoadedConfig& config);
// Throws Error(kConfig) if `hardware` names a machine with a GPU and the run would use none, which
// would be counted and paid as one; warns if the GPU has another name.
void check_hardware(const LoadedConfig& config);

// Throws Error(kConfig) if output_dir holds a run, finished or not, that training with this
// configuration would not continue. Changes nothing. Throws Interrupted.
void check_output_folder(const LoadedConfig& config);

// Implements `finetune train`: starts or resumes, evaluates, saves, writes the results. Returns the
// exit code: 0 finished (or already was), 4 finished without a single saved checkpoint, 75 stopped
// early with everything saved. Throws Error and Interrupted. Requires: installed signal handlers
// (interrupt.h), otherwise stops are not noticed.
int run_training(const LoadedConfig& config, const RunOptions& options);

// The model that `finetune evaluate` evaluates.
enum class EvaluatedModel {
  // The finished model in output_dir; if there is none, model_name_or_path, and if that is unset,
  // the newest checkpoint. A model_name_or_path on the command line takes precedence.
  kTrained,
  kNewest,  // the newest valid checkpoint; if there is none, the finished model
  kBase,    // model_name_or_path
};

// Implements `finetune evaluate`: returns the metrics on the validation data. `int8_products`: as
// an export of the model in int8 computes.
[[nodiscard]] nlohmann::ordered_json run_evaluation(const LoadedConfig& config,
                                                    EvaluatedModel model,
                                                    bool int8_products = false);

}  // namespace finetune
