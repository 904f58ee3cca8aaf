// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "train/saving.h"
#include "train/training_run.h"
#include "train/update_step.h"

namespace finetune {

// Decides what happens after NaN, Inf or a spike (divergence_policy): skip the update, roll back to
// the newest checkpoint, or stop the run with Error(kData). Owns RunState::divergence. Each answer
// is a function of the checkpoint alone, so a run that is stopped in between ends in the same bits.
// Collectives: all ranks ask at the same places.
class Recovery {
 public:
  Recovery(TrainingRun& run, Saving& saving) : run_(run), saving_(saving) {}

  // These return why the run has to roll back; nothing: it continues.
  // After an update that was not applied. Nothing: the step stays without an update.
  [[nodiscard]] std::optional<std::string> after_fault(const StepReport& report);
  // After a step: what is evaluated, saved by a stop or exported next has to be finite. `position`:
  // where the step began.
  [[nodiscard]] std::optional<std::string> after_step(const StepReport& report,
                                                      const Position& position);
  // What a save found, which reads everything while training continues.
  [[nodiscard]] std::optional<std::string> after_save();

  // The newest valid checkpoint. Throws Error(kData) where there is none. Logs the rollback.
  [[nodiscard]] checkpoint::CheckpointEntry choose_checkpoint(const std::string& reason) const;
  // ", 2 updates skipped, 1 rollback"; empty where nothing went wrong.
  [[nodiscard]] std::string faults_text() const;

 private:
  // `nonfinite`: what is in the state.
  [[noreturn]] void stop_diverged(const StepReport& report, const Damage& damage,
                                  const std::string& nonfinite);
  [[noreturn]] void stop_poisoned(const std::string& reason) const;
  [[nodiscard]] std::string try_text() const;

  TrainingRun& run_;
  Saving& saving_;
};

}  // namespace finetune
