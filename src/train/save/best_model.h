// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/state/checkpoint_part.h"
#include "finetune/state/run_state.h"
#include "train/save/saving.h"
#include "train/session/training_run.h"

namespace finetune {

// Returns metric_for_best_model with the prefix of log entries: "eval_loss". Requires: the key is
// set.
[[nodiscard]] std::string best_metric_key(const TrainingArgs& args);

// Logs one warning if the finished run could not export its best model.
void warn_of_lost_best(const RunState& finished);

// Chooses the weights to export with load_best_model_at_end and describes them in the record of the
// finished run. Owns RunState::lost_best_step. Rank 0 decides.
class BestModel {
 public:
  // `weights`: the checkpoint part that restores the weights.
  BestModel(TrainingRun& run, Saving& saving, std::shared_ptr<CheckpointPart> weights)
      : run_(run), saving_(saving), weights_(std::move(weights)) {}

  // Loads the weights of the best checkpoint. If they are lost, loads those of the best remaining
  // checkpoint and logs an error. A collective.
  void load();
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  // Writes the choice to the records of the finished run. Checkpoints keep the best metric of all
  // until then.
  void describe() const;

 private:
  // The exported best weights, as recorded in trainer_state.json.
  struct Exported {
    int64_t step = 0;
    std::optional<double> metric = {};
    std::optional<std::string> checkpoint = {};  // nullopt: only in memory
  };

  void choose();
  void lose(int64_t step, const std::string& why);
  [[nodiscard]] Exported best_left() const;
  [[nodiscard]] std::optional<double> logged_metric(int64_t step) const;

  TrainingRun& run_;
  Saving& saving_;
  std::shared_ptr<CheckpointPart> weights_;
  std::optional<Exported> exported_;  // of rank 0; nullopt: no evaluated weights were chosen
  bool is_lost_ = false;              // the best weights can no longer be exported
};

}  // namespace finetune
