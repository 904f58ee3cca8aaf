// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "finetune/task/metrics.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Trains a reward model on preferences, as TRL's RewardTrainer.

const TaskKeys& reward_keys();
const TaskDescriptor& reward_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_reward_setup(const SetupContext& context);

// `model` must outlive the task. One term: -log sigmoid(r_chosen - r_rejected - margin) of each
// pair (Bradley and Terry 1952), plus `centering` times (r_chosen + r_rejected)^2 (Eisenstein et
// al. 2023, "Helping or Herding?"). Outputs::logits are the rewards [samples, 2].
[[nodiscard]] std::unique_ptr<Task> make_reward_task(Model& model, c10::Device device,
                                                     double centering);

// Computes accuracy, margin, min_reward, mean_reward and max_reward.
[[nodiscard]] std::unique_ptr<Metrics> make_reward_metrics();

}  // namespace finetune
