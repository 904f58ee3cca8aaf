// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "finetune/report/event_writer.h"
#include "finetune/report/metrics_file.h"
#include "train/session/session_watch.h"
#include "train/session/training_run.h"

namespace finetune {

// The log of a run: entries of trainer_state.json, metrics.jsonl, TensorBoard's events, lines of
// the progress display. Owns the loss window of RunState and TrainerState::log_history.
class RunLog {
 public:
  RunLog(TrainingRun& run, SessionWatch& watch) : run_(run), watch_(watch) {}

  // Starts a new event file for this session, or for the steps after a rollback, and truncates
  // metrics.jsonl to the restored log. If TensorBoard's events cannot be written, a new run throws
  // Error(kIo) and a resumed run logs a warning.
  void open();
  // Appends an entry for the current step. Throws Error(kBusy) if another session has taken over
  // the output folder.
  void log(nlohmann::ordered_json values);
  // Makes metrics.jsonl agree with the log and survive a power cut.
  void sync();
  // Logs the mean loss since the last call, gradient norm and learning rate.
  void log_window();
  // Ends the window without an entry: its losses still count for train_loss.
  void close_window();

 private:
  [[nodiscard]] MeasureMeans window_measures() const;
  void open_events();
  void restore_metrics();

  TrainingRun& run_;
  SessionWatch& watch_;
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<MetricsFile> metrics_;  // of rank 0
};

// Returns the metrics of the weights after `step` if they are in the log. Masks in evaluation
// depend only on the sample, so another evaluation would give the same numbers.
[[nodiscard]] std::optional<nlohmann::ordered_json> logged_metrics(const TrainerState& state,
                                                                   int64_t step);

}  // namespace finetune
