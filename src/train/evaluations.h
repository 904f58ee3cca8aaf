// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "train/memory_recovery.h"
#include "train/run_log.h"
#include "train/training_run.h"

namespace finetune {

// Evaluates the weights that are in memory, and draws the conclusions: best metric, plateau
// schedules, early stopping, as transformers' Trainer and its callback. Owns the evaluation's part
// of RunState (evaluation_pending, early stopping) and the best metric of TrainerState.
class Evaluations {
 public:
  Evaluations(TrainingRun& run, MemoryRecovery& memory, RunLog& log)
      : run_(run), memory_(memory), log_(log) {}

  // eval_on_start: no best model, schedule or early stopping yet. False where a stop was requested.
  [[nodiscard]] bool evaluate_first();
  // Where one is due at this step or still pending. False where a stop was requested: it stays
  // pending, and the next session begins with it.
  [[nodiscard]] bool evaluate_if_due();
  // For the end of a run: the metrics of the exported weights, from the log where it has them (and
  // the files of predictions are those of these weights). `is_new`: they are not in the log yet.
  // Nothing where a stop was requested.
  [[nodiscard]] std::optional<nlohmann::ordered_json> evaluate_exported(bool& is_new);
  // Metrics and predictions of the test data. Nothing where a stop was requested.
  [[nodiscard]] std::optional<nlohmann::ordered_json> predict();

  void rolled_back();

 private:
  [[nodiscard]] std::optional<nlohmann::ordered_json> evaluate_weights();
  void conclude(const nlohmann::ordered_json& metrics);

  TrainingRun& run_;
  MemoryRecovery& memory_;
  RunLog& log_;
  int64_t files_of_step_ = -1;  // whose answers evaluation wrote into files last, this session
};

}  // namespace finetune
