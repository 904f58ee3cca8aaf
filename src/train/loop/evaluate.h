// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/data/loader.h"
#include "finetune/report/progress.h"
#include "train/setup/assemble.h"

namespace finetune {

// The result of one pass over the validation or test data.
struct EvaluationResult {
  // Names and meaning are those of transformers: "eval_loss" (batch means weighted by samples), the
  // task's metrics, runtime and speed; for test data "predict_...", with loss and metrics only if
  // there are labels.
  nlohmann::ordered_json metrics;
  std::unique_ptr<PredictionFiles> files;  // null: the task has no files for this split
};

// Returns nullopt if a stop was requested before the last batch: an interrupted evaluation is
// repeated, never counted in part. With prediction_loss_only the task's metrics are left out. If
// memory does not suffice for the batch that the keys ask for, the batch is computed in parts of
// `rows_at_a_time`, which is then reduced to a smaller divisor; loss and metrics are still those of
// the whole batch. If several batches are computed at the same time, their number is reduced first.
// Requires: the split was read.
[[nodiscard]] std::optional<EvaluationResult> evaluate(Parts& parts, Split split,
                                                       const TrainingArgs& args,
                                                       ProgressDisplay& progress,
                                                       int64_t& rows_at_a_time);

// Returns the loss and the task's metrics: "eval_loss 6.371, eval_accuracy 0.094".
[[nodiscard]] std::string describe_metrics(const nlohmann::ordered_json& metrics);

}  // namespace finetune
