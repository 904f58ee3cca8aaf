// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/model/model.h"
#include "finetune/optim/loss_scaler.h"
#include "finetune/optim/optimizer.h"
#include "finetune/optim/schedule.h"
#include "finetune/state/checkpoint_part.h"
#include "finetune/state/metrics_log.h"
#include "finetune/state/run_state.h"
#include "finetune/state/state_gather.h"

// The parts of a run's checkpoint, by the files they own. Arguments passed by reference must
// outlive the parts.
namespace finetune {

// config.json and model.safetensors (large models: shards with an index). Weights in another format
// than the store's are converted, which is logged. `gather` brings divided ones; null: none is.
[[nodiscard]] std::shared_ptr<CheckpointPart> model_part(Model& model, const ModelConfig& config,
                                                         StateGather* gather);

// Small text files such as the tokenizer's and the data record. `files` returns names and contents;
// it is called at every save.
using TextFiles = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] std::shared_ptr<CheckpointPart> text_part(std::function<TextFiles()> files);

// Inputs of the learning rates in optimizer.pt and scheduler.pt. The schedule is replaced when a
// run is prepared again.
struct RateSource {
  const std::unique_ptr<Schedule>& schedule;
  const RunState& state;
  double initial_learning_rate = 0.0;
};

// optimizer.pt, optimizer.safetensors or both. `gather` collects the states of other ranks; null:
// this rank has all of them.
[[nodiscard]] std::shared_ptr<CheckpointPart> optimizer_part(Optimizer& optimizer,
                                                             const RateSource& rates,
                                                             StateGather* gather);
// scaler.pt, if there is a loss scaler.
[[nodiscard]] std::shared_ptr<CheckpointPart> scaler_part(std::optional<LossScaler>& scaler);
// scheduler.pt, with a rate for each of the optimizer's groups. The schedule is restored from
// RunState::schedule; for a foreign checkpoint from the file, if the schedule follows a metric.
[[nodiscard]] std::shared_ptr<CheckpointPart> schedule_part(const Optimizer& optimizer,
                                                            const RateSource& rates);
// trainer_state.json, including transformers' log_history.
[[nodiscard]] std::shared_ptr<CheckpointPart> trainer_state_part(TrainerState& state);
// finetune_state.json. A foreign checkpoint has none, so nothing is loaded.
[[nodiscard]] std::shared_ptr<CheckpointPart> run_state_part(RunState& state);

}  // namespace finetune
