// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/state/checkpoint_part.h"
#include "finetune/state/run_state.h"
#include "train/saving.h"
#include "train/training_run.h"

namespace finetune {

// metric_for_best_model as log entries name it: "eval_loss". Requires: the key is set.
[[nodiscard]] std::string best_metric_key(const TrainingArgs& args);

// One warning where the finished run could not export its best model.
void warn_of_lost_best(const RunState& finished);

// Which weights are exported at the end with load_best_model_at_end, and what the record of the
// finished run says of them. Owns RunState::lost_best_step. Rank 0 decides.
class BestModel {
 public:
  // `weights`: the part of the checkpoint that restores them.
  BestModel(TrainingRun& run, Saving& saving, std::shared_ptr<CheckpointPart> weights)
      : run_(run), saving_(saving), weights_(std::move(weights)) {}

  // Loads the weights of the best checkpoint. Where they are lost, those of the best one that is
  // left; an error says so. A collective.
  void load();
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  // Only in the finished run's record: until then a checkpoint needs the best metric of all.
  void describe() const;

 private:
  // Weights that are exported as the best ones, and their record in trainer_state.json.
  struct Exported {
    int64_t step = 0;
    std::optional<double> metric = {};
    std::optional<std::string> checkpoint = {};  // nothing: they are in memory alone
  };

  void choose();
  void lose(int64_t step, const std::string& why);
  [[nodiscard]] Exported best_left() const;
  [[nodiscard]] std::optional<double> logged_metric(int64_t step) const;

  TrainingRun& run_;
  Saving& saving_;
  std::shared_ptr<CheckpointPart> weights_;
  std::optional<Exported> exported_;  // rank 0's; nothing: no evaluated weights were chosen
  bool is_lost_ = false;              // the best weights cannot be exported any more
};

}  // namespace finetune
