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

// The parts of a run's checkpoint, by the files that they own. What they refer to must outlive
// them.
namespace finetune {

// config.json and model.safetensors, in shards with an index where it is large. Weights of another
// format than the store's are converted, with a line in the log.
[[nodiscard]] std::shared_ptr<CheckpointPart> model_part(Model& model, const ModelConfig& config);

// Files whose text is at hand: those of the tokenizer, the data record. `files`: name and content,
// asked for at every save.
using TextFiles = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] std::shared_ptr<CheckpointPart> text_part(std::function<TextFiles()> files);

// What the rates in optimizer.pt and scheduler.pt are computed from. The schedule is replaced when
// a run is prepared again.
struct RateSource {
  const std::unique_ptr<Schedule>& schedule;
  const RunState& state;
  double initial_learning_rate = 0.0;
};

// optimizer.pt, optimizer.safetensors or both. `gather`: brings the states of other ranks; null:
// this rank has all of them.
[[nodiscard]] std::shared_ptr<CheckpointPart> optimizer_part(Optimizer& optimizer,
                                                             const RateSource& rates,
                                                             StateGather* gather);
// scaler.pt, where there is a loss scaler.
[[nodiscard]] std::shared_ptr<CheckpointPart> scaler_part(std::optional<LossScaler>& scaler);
// scheduler.pt, with a rate for each of the optimizer's groups. The schedule is restored from
// RunState::schedule, of a foreign checkpoint from the file where the schedule follows a metric.
[[nodiscard]] std::shared_ptr<CheckpointPart> schedule_part(const Optimizer& optimizer,
                                                            const RateSource& rates);
// trainer_state.json: transformers' log and record.
[[nodiscard]] std::shared_ptr<CheckpointPart> trainer_state_part(TrainerState& state);
// finetune_state.json. A foreign checkpoint has none: nothing is loaded.
[[nodiscard]] std::shared_ptr<CheckpointPart> run_state_part(RunState& state);

}  // namespace finetune
