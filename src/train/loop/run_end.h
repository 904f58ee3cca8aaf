// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>

#include "train/loop/evaluations.h"
#include "train/loop/recovery.h"
#include "train/save/best_model.h"
#include "train/save/saving.h"
#include "train/session/run_log.h"
#include "train/session/session_watch.h"
#include "train/session/training_run.h"

namespace finetune {

// The model of a finished run is whole, and results that were lost cannot be computed again.
class ResultsLost : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The end of a run after its last step: best model, evaluation, predictions, results, and the
// finished model next to the checkpoints. finetune_state.json, which marks the run as finished, is
// written last.
class RunEnd {
 public:
  RunEnd(TrainingRun& run, Saving& saving, Evaluations& evaluations, BestModel& best, RunLog& log,
         SessionWatch& watch)
      : run_(run),
        saving_(saving),
        evaluations_(evaluations),
        best_(best),
        log_(log),
        watch_(watch) {}

  // Returns the exit code; nullopt if a stop was requested. `faults`: text for the last line.
  [[nodiscard]] std::optional<int> finish(const std::string& faults);

 private:
  using Json = nlohmann::ordered_json;
  using Metrics = std::optional<Json>;
  [[nodiscard]] Json summarize() const;
  // Called on rank 0.
  void write(const Json& summary, const Metrics& metrics, const Metrics& predicted);
  void check_rebuilt_weights() const;
  void export_model(const Json& summary, const Metrics& metrics);
  [[nodiscard]] int exit_code() const;

  TrainingRun& run_;
  Saving& saving_;
  Evaluations& evaluations_;
  BestModel& best_;
  RunLog& log_;
  SessionWatch& watch_;
};

}  // namespace finetune
