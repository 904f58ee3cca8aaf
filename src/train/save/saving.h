// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "finetune/state/checkpoint_part.h"
#include "train/folder/space.h"
#include "train/save/checkpoint_saver.h"
#include "train/save/save_clock.h"
#include "train/session/session_watch.h"
#include "train/session/training_run.h"

namespace finetune {

// Saves the checkpoints of a run: when, with which contents, and what happened to the last one. A
// failed save never ends the run. Owns RunState::automatic_steps and the record of the best
// checkpoint. Rank 0 writes; with divided states the other ranks send theirs.
class Saving {
 public:
  // All parts of a checkpoint in the order of its files: `contents` are restored after the run is
  // prepared, `records` before it (trainer_state.json, finetune_state.json).
  Saving(TrainingRun& run, SessionWatch& watch, CheckpointParts contents, CheckpointParts records);

  // Call before the first step. Throws Error(kIo) on every rank if not even one checkpoint fits on
  // the disk.
  void prepare();

  // Makes scheduled saves, then those that the clock asks for; the latter never wait for the disk.
  // A collective if states are divided.
  void save_if_due();
  // Saves this step unless it is saved; returns whether it is saved now. A collective.
  [[nodiscard]] bool save_if_missing();
  // Waits until nothing is being written.
  void settle();
  // Call at the end of a run, when nothing is being written: deletes what only interruptions saved.
  void remove_automatic() const;
  // Call before weights or states change: copies the tensors that are still being written.
  void before_update() { saver_->before_update(); }
  [[nodiscard]] bool is_busy() const { return saver_->is_busy(); }

  // Call after a restore. `is_saved`: the step of the run has a checkpoint.
  void restarted(bool is_saved);
  // The save that found NaN or Inf, if any; it committed nothing.
  [[nodiscard]] std::optional<SaveOutcome>& nonfinite() { return nonfinite_; }
  [[nodiscard]] int64_t failed() const { return failed_; }
  [[nodiscard]] bool has_none() const { return failed_ > 0 && committed_ == 0; }

  // Updates the records to this step before they are written.
  void update_records();
  [[nodiscard]] const CheckpointParts& contents() const { return contents_; }
  [[nodiscard]] const CheckpointParts& records() const { return records_; }
  [[nodiscard]] std::optional<int64_t> best_checkpoint_step() const;

 private:
  // `on_schedule`: the keys ask for this save.
  void save(bool on_schedule);
  [[nodiscard]] SaveRequest request(SaveKind kind);
  // Waits for the previous save; returns false if the disk is slower than the keys ask for.
  bool wait_for_saver();
  void collect();
  void note_failure(const SaveOutcome& outcome);
  void serve();
  void reserve_copies();
  void check_space() const;
  [[nodiscard]] SavesToCome saves_to_come() const;
  [[nodiscard]] checkpoint::RotationPolicy rotation_policy() const;
  [[nodiscard]] int64_t deletable_before_next() const;
  [[nodiscard]] uint64_t end_bytes() const;

  TrainingRun& run_;
  SessionWatch& watch_;
  CheckpointParts contents_;
  CheckpointParts records_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::optional<SaveClock> clock_;
  int64_t saved_step_ = -1;   // newest checkpoint of this run
  int64_t saving_step_ = -1;  // being written
  bool is_owed_ = false;      // a scheduled save gave up waiting
  std::optional<SaveOutcome> nonfinite_;
  int64_t session_steps_ = 0;
  bool copies_are_reserved_ = false;
  // Values that a failed save restores.
  std::optional<std::string> best_before_;
  std::vector<int64_t> automatic_before_;
  int64_t committed_ = 0;
  int64_t failed_ = 0;
};

}  // namespace finetune
