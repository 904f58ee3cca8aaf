// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/tensor/torch_file.h"

// scheduler.pt in the formats of torch's and transformers' schedules.
namespace finetune {

// Returns scheduler.pt as LambdaLR's state_dict after `updates` updates. `factors`: the multiplier
// of the learning rate for each of the optimizer's groups.
[[nodiscard]] TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate,
                                            double learning_rate,
                                            const std::vector<double>& factors);

// Converts the scheduler.pt of transformers' Trainer to the state of a schedule that follows a
// metric (torch's ReduceLROnPlateau, transformers' GreedyLR), for Schedule::load_state(); nullopt
// if the file belongs to a schedule that is a function of the step. The options in the file are
// ignored in favour of lr_scheduler_kwargs. `where` names the file. Throws Error(kCheckpoint).
[[nodiscard]] std::optional<nlohmann::ordered_json> metric_schedule_from_torch(
    const TorchValue& scheduler, const std::string& where);

// The inverse, for load_state_dict() of both classes. `state` is Schedule::state() of a schedule
// that follows a metric. `factors`: the multiplier of the learning rate for each of the optimizer's
// groups.
[[nodiscard]] TorchValue metric_schedule_to_torch(const nlohmann::ordered_json& state,
                                                  const std::vector<double>& factors);

}  // namespace finetune
