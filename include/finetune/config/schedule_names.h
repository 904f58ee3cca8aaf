// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

// The half of each learning rate schedule's descriptor that a configuration needs: its name and
// keys. The other half, the rates, is ScheduleKind (optim/schedule.h).
namespace finetune {

struct ScheduleNames {
  std::string type = {};                    // lr_scheduler_type
  std::vector<std::string> arguments = {};  // keys of lr_scheduler_kwargs
  std::vector<std::string> one_of = {};     // exactly one of these must be given
  bool follows_metric = false;              // needs evaluations and metric_for_best_model
};

// Those of config/schedules.def, then those added.
[[nodiscard]] const std::deque<ScheduleNames>& schedule_names();
// nullptr: unknown.
[[nodiscard]] const ScheduleNames* find_schedule_names(std::string_view type);

// Adds a schedule that is not in schedules.def (tests). Requires: a new type; no configuration has
// been loaded yet.
void add_schedule_names(ScheduleNames names);

}  // namespace finetune
