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
  bool restart = false;  // set all checkpoints aside and begin at step 0
  // Stop after this many steps as if a signal had come: saved, exit code 75.
  std::optional<int64_t> stop_at_step = {};
  // Called after every update, and for a run that was finished before.
  std::function<void(int64_t step)> on_step = {};
  std::function<void()> on_already_finished = {};
  // Parts of a checkpoint besides the run's own (state/checkpoint_part.h).
  std::vector<std::shared_ptr<CheckpointPart>> more_parts = {};
  // The processes that train together, of which this is one; null: it is alone. All of them call
  // run_training, with the same configuration.
  std::shared_ptr<World> world = {};
};

// Throws Error(kConfig) if keys exclude that number of processes, or the batch cannot be divided
// among them. Call it before anything is loaded or started.
void check_processes(const LoadedConfig& config, int64_t processes);

// Throws Error(kConfig) where training would overwrite the model that it starts from: output_dir or
// mirror_dir is the model's folder, by whatever path. To be asked before anything is written.
void check_starting_folder(const LoadedConfig& config);

// `finetune train`: starts or resumes, evaluates, saves, writes the results. Returns the exit code
// of the contract: 0 finished (or already was), 4 finished without a single saved checkpoint,
// 75 stopped early with everything saved. Throws Error and Interrupted. Requires: installed signal
// handlers (interrupt.h) for stops to be noticed.
int run_training(const LoadedConfig& config, const RunOptions& options);

// Which model `finetune evaluate` evaluates.
enum class EvaluatedModel {
  // The trained model of the finished run in output_dir; else what model_name_or_path names, or
  // where that is unset the newest checkpoint. A model_name_or_path of the command line wins.
  kTrained,
  kNewest,  // the newest valid checkpoint, or the finished model where there is none
  kBase,    // what model_name_or_path names
};

// `finetune evaluate`: metrics on the validation data.
[[nodiscard]] nlohmann::ordered_json run_evaluation(const LoadedConfig& config,
                                                    EvaluatedModel model);

}  // namespace finetune
