// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/data/loader.h"
#include "finetune/task/metrics.h"
#include "finetune/task/task.h"
#include "finetune/train/progress.h"

namespace finetune {

// eval_loss with transformers' meaning (batch means weighted by samples), what `results` makes of
// all batches, runtime and speed. Nothing where a stop was asked for before the last batch: an
// evaluation that was cut is done again, never half-counted.
[[nodiscard]] std::optional<nlohmann::ordered_json> evaluate(Task& task, Metrics& results,
                                                             const EvaluationLoader& loader,
                                                             ProgressDisplay& progress);

// "eval_loss 6.371, eval_accuracy 0.094"
[[nodiscard]] std::string describe_metrics(const nlohmann::ordered_json& metrics);

}  // namespace finetune
