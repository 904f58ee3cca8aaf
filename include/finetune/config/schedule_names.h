// SPDX-License-Identifier: MIT
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

// The part of each learning rate schedule's descriptor that a configuration needs: name and keys.
// The computation of rates is in ScheduleKind (optim/schedule.h).
namespace finetune {

struct ScheduleNames {
  std::string type = {};                    // lr_scheduler_type
  std::vector<std::string> arguments = {};  // keys of lr_scheduler_kwargs
  std::vector<std::string> one_of = {};     // exactly one of these must be given
  bool follows_metric = false;              // needs evaluations and metric_for_best_model
};

// The schedules of config/schedules.def, followed by those added with add_schedule_names().
[[nodiscard]] const std::deque<ScheduleNames>& schedule_names();
// Returns nullptr if the type is unknown.
[[nodiscard]] const ScheduleNames* find_schedule_names(std::string_view type);

// Registers a schedule that is not in schedules.def (for tests). Requires: a new type; no
// configuration has been loaded yet.
void add_schedule_names(ScheduleNames names);

}  // namespace finetune
