// SPDX-License-Identifier: MIT

#include "config/reading/problems.h"
#include "finetune/base/clock.h"
#include "finetune/config/price_list.h"
#include "finetune/config/session_time.h"

namespace finetune {
namespace {

void check_limits(const LoadedConfig& config, Problems& problems) {
  const TrainingArgs& args = config.args;
  if (args.session_hours && args.session_deadline) {
    problems.add(config.where("session_deadline"),
                 "'session_deadline' and 'session_hours' (" + config.where("session_hours") +
                     ") both say when the session ends: keep one");
  }
  if (args.session_clock && !args.session_hours) {
    problems.add(config.where("session_clock"),
                 "'session_clock' says where session_hours are counted from: set session_hours, "
                 "or leave it out");
  }
  if (args.session_deadline &&
      !session_time(*args.session_deadline, static_cast<int64_t>(unix_seconds()))) {
    problems.add(config.where("session_deadline"),
                 "'session_deadline' must be a time such as 23:30, 2030-01-31T23:30 or "
                 "2030-01-31T23:30+09:00, not '" +
                     *args.session_deadline + "'");
  }
}

void check_cost(const LoadedConfig& config, Problems& problems) {
  try {
    (void)hardware_of(config.args);
  } catch (const Error& error) {
    problems.add(config.where("hardware"), error.what());
  }
  if (config.args.unit_budget && config.args.hardware.empty()) {
    problems.add(config.where("unit_budget"),
                 "'unit_budget' needs 'hardware', which says how many units an hour takes");
  }
}

}  // namespace

void check_session(const LoadedConfig& config, Problems& problems) {
  check_limits(config, problems);
  check_cost(config, problems);
  const TrainingArgs& args = config.args;
  for (const auto& [key, command] : {std::pair{"on_finish_command", &args.on_finish_command},
                                     {"on_interrupt_command", &args.on_interrupt_command},
                                     {"on_failure_command", &args.on_failure_command}}) {
    if (command->empty() || !command->front().empty()) continue;
    problems.add(config.where(key),
                 "'" + std::string(key) + "' must begin with a program: its first word is empty");
  }
}

}  // namespace finetune
