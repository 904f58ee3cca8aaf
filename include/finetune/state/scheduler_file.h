// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/tensor/torch_file.h"

// scheduler.pt, as torch's and transformers' schedules keep their state.
namespace finetune {

// scheduler.pt as LambdaLR's state_dict after `updates` updates. `factors`: of each of the
// optimizer's groups, what multiplies the learning rate.
[[nodiscard]] TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate,
                                            double learning_rate,
                                            const std::vector<double>& factors);

// The state of a schedule that follows a metric (torch's ReduceLROnPlateau, transformers' GreedyLR)
// as Schedule::load_state() takes it, from the scheduler.pt that transformers' Trainer keeps;
// nothing where the file is of a schedule that is a function of the step. The options in the file
// are not taken: lr_scheduler_kwargs say them. `where` names the file. Throws Error(kCheckpoint).
[[nodiscard]] std::optional<nlohmann::ordered_json> metric_schedule_from_torch(
    const TorchValue& scheduler, const std::string& where);

// The other way: what both load_state_dict() take. `state` is Schedule::state() of a schedule that
// follows a metric. `factors`: of each of the optimizer's groups, what multiplies the learning
// rate.
[[nodiscard]] TorchValue metric_schedule_to_torch(const nlohmann::ordered_json& state,
                                                  const std::vector<double>& factors);

}  // namespace finetune
