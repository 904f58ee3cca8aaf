// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "finetune/data/loader.h"
#include "finetune/task/task.h"
#include "finetune/train/progress.h"

namespace finetune {

// eval_loss with transformers' meaning (batch means weighted by rows), eval_accuracy over all
// targets, runtime and speed. Nothing where a stop was asked for before the last batch: an
// evaluation that was cut is done again, never half-counted.
[[nodiscard]] std::optional<nlohmann::ordered_json> evaluate(Task& task,
                                                             const EvaluationLoader& loader,
                                                             int64_t samples,
                                                             ProgressDisplay& progress);

// "eval_loss 6.371, eval_accuracy 0.094"
[[nodiscard]] std::string describe_metrics(const nlohmann::ordered_json& metrics);

}  // namespace finetune
