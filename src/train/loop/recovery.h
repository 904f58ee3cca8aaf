// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "train/loop/update_step.h"
#include "train/save/saving.h"
#include "train/session/training_run.h"

namespace finetune {

// Decides what happens after NaN, Inf or a spike (divergence_policy): skip the update, roll back to
// the newest checkpoint, or stop the run with Error(kData). Owns RunState::divergence. Each
// decision depends only on the checkpoint, so a run that is interrupted in between ends with the
// same bits. Collectives: all ranks must call them at the same points.
class Recovery {
 public:
  Recovery(TrainingRun& run, Saving& saving) : run_(run), saving_(saving) {}

  // These return the reason for a rollback; nullopt: the run continues.
  // After an update that was not applied; nullopt: the step stays without an update.
  [[nodiscard]] std::optional<std::string> after_fault(const StepReport& report);
  // After a step: checks weights and states if they are evaluated, saved by a stop or exported
  // next. `position`: where the step began.
  [[nodiscard]] std::optional<std::string> after_step(const StepReport& report,
                                                      const Position& position);
  // After a save, which checked the whole state while training continued.
  [[nodiscard]] std::optional<std::string> after_save();

  // Returns the newest valid checkpoint and logs the rollback. Throws Error(kData) if there is
  // none.
  [[nodiscard]] checkpoint::CheckpointEntry choose_checkpoint(const std::string& reason) const;
  // Returns ", 2 updates skipped, 1 rollback"; empty if there were no faults.
  [[nodiscard]] std::string faults_text() const;

 private:
  // `nonfinite`: the part of the state with NaN or Inf.
  [[noreturn]] void stop_diverged(const StepReport& report, const Damage& damage,
                                  const std::string& nonfinite);
  [[noreturn]] void stop_poisoned(const std::string& reason) const;
  [[nodiscard]] std::string try_text() const;

  TrainingRun& run_;
  Saving& saving_;
};

}  // namespace finetune
