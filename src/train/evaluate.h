// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/data/loader.h"
#include "finetune/report/progress.h"
#include "train/assemble.h"

namespace finetune {

// One pass of the weights over the validation or the test data.
struct EvaluationResult {
  // With transformers' names and meaning: "eval_loss" (batch means weighted by samples), the
  // task's metrics, runtime and speed; "predict_..." for the test data, where loss and metrics are
  // there only if labels are.
  nlohmann::ordered_json metrics;
  std::unique_ptr<PredictionFiles> files;  // null: the task writes none for this split
};

// Nothing where a stop was asked for before the last batch: an evaluation that was cut is done
// again, never half-counted. prediction_loss_only leaves the task's metrics out. Where memory does
// not suffice for the batch that the keys ask for, it is taken in parts of `rows_at_a_time`, a
// divisor of it that becomes smaller then; loss and metrics are those of the whole batch. Where
// several batches are computed at once, fewer are first. Requires:
// the split was read.
[[nodiscard]] std::optional<EvaluationResult> evaluate(Parts& parts, Split split,
                                                       const TrainingArgs& args,
                                                       ProgressDisplay& progress,
                                                       int64_t& rows_at_a_time);

// "eval_loss 6.371, eval_accuracy 0.094": the loss and the task's metrics.
[[nodiscard]] std::string describe_metrics(const nlohmann::ordered_json& metrics);

}  // namespace finetune
