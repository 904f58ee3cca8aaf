// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "train/loop/memory_recovery.h"
#include "train/session/run_log.h"
#include "train/session/training_run.h"

namespace finetune {

// Evaluates the weights in memory and acts on the result as transformers' Trainer and its callback
// do: best metric, plateau schedules, early stopping. Owns the evaluation's part of RunState
// (evaluation_pending, early stopping) and the best metric of TrainerState.
class Evaluations {
 public:
  Evaluations(TrainingRun& run, MemoryRecovery& memory, RunLog& log)
      : run_(run), memory_(memory), log_(log) {}

  // Evaluates for eval_on_start, without best model, schedule and early stopping. Returns false if
  // a stop was requested.
  [[nodiscard]] bool evaluate_first();
  // Evaluates if it is due at this step or still pending. Returns false if a stop was requested:
  // then the evaluation stays pending, and the next session starts with it.
  [[nodiscard]] bool evaluate_if_due();
  // Returns the metrics of the exported weights at the end of a run: from the log if it has them
  // and the prediction files belong to these weights, else by evaluating. `is_new`: they are not in
  // the log yet. Nullopt if a stop was requested.
  [[nodiscard]] std::optional<nlohmann::ordered_json> evaluate_exported(bool& is_new);
  // Returns the metrics of the test data and writes its predictions. Nullopt if a stop was
  // requested.
  [[nodiscard]] std::optional<nlohmann::ordered_json> predict();

  void rolled_back();

 private:
  [[nodiscard]] std::optional<nlohmann::ordered_json> evaluate_weights();
  // Writes answers of the weights to generated_samples.jsonl and logs them. Returns false if a stop
  // was requested.
  [[nodiscard]] bool generate_samples();
  // Calls write(), whose error does not end training before the last step.
  void write_files(const std::string& what, const std::function<void()>& write) const;
  void conclude(const nlohmann::ordered_json& metrics);

  TrainingRun& run_;
  MemoryRecovery& memory_;
  RunLog& log_;
  int64_t files_of_step_ = -1;  // step of the last prediction files that this session wrote
};

}  // namespace finetune
