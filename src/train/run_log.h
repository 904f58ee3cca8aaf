// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "finetune/report/event_writer.h"
#include "train/training_run.h"

namespace finetune {

// The log of a run: entries of trainer_state.json, TensorBoard's events, lines of the progress
// display. Owns the loss window of RunState and TrainerState::log_history.
class RunLog {
 public:
  explicit RunLog(TrainingRun& run) : run_(run) {}

  // Starts the events of this session, after a rollback those of what follows. Where they cannot be
  // written, a new run throws Error(kIo) and a resumed one logs a warning.
  void open();
  // Appends an entry of the present step.
  void log(nlohmann::ordered_json values);
  // The mean loss since the last call, gradient norm and learning rate.
  void log_window();
  // Ends the window without an entry: its losses count for train_loss.
  void close_window();

 private:
  TrainingRun& run_;
  std::unique_ptr<EventWriter> events_;
};

// The metrics of the weights after `step`, where the log has them. Masks in an evaluation depend on
// the sample alone, so evaluating again would give the same numbers.
[[nodiscard]] std::optional<nlohmann::ordered_json> logged_metrics(const TrainerState& state,
                                                                   int64_t step);

}  // namespace finetune
