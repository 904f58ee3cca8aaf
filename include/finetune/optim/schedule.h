// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/config/schedule_names.h"

// Learning rate schedules: those of transformers' lr_scheduler_type, with the same values.
namespace finetune {

struct ScheduleOptions {
  std::string type = "linear";     // one of schedules()
  double learning_rate = 5e-5;     // the peak rate, which every factor multiplies
  int64_t warmup_steps = 0;        // in updates; ratios are already resolved
  int64_t max_steps = 0;           // updates of the whole run
  std::string kwargs_json;         // lr_scheduler_kwargs as a JSON object; empty: none
  bool greater_is_better = false;  // default of `mode` for schedules that follow a metric
};

// Most schedules are pure functions of the number of updates: a run can start at any position, and
// a changed max_steps or learning_rate takes effect from there. Schedules that follow the
// evaluation metric keep a small state.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // Returns the rate of the next update after `updates` applied ones. Defined for all updates >= 0;
  // beyond max_steps it returns what LambdaLR returns.
  [[nodiscard]] virtual double learning_rate(int64_t updates) const = 0;

  // Called after each evaluation with the value of metric_for_best_model; NaN counts as no
  // improvement. Ignored if follows_metric() is false.
  virtual void observe(double metric);
  [[nodiscard]] virtual bool follows_metric() const { return false; }

  // Returns an object with "type" and, if the schedule follows a metric, its counters and rates by
  // transformers' names; doubles are exact, non-finite values are text ("inf", "nan"). load_state()
  // leaves a new schedule unchanged if the stored type differs (the key was changed between
  // sessions); a changed learning_rate scales the stored rate. Throws Error(kCheckpoint) for a
  // malformed state.
  [[nodiscard]] virtual nlohmann::ordered_json state() const = 0;
  virtual void load_state(const nlohmann::ordered_json& state) = 0;
};

// Throws Error(kConfig) naming lr_scheduler_type or lr_scheduler_kwargs and the valid values.
[[nodiscard]] std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options);

class ScheduleKwargs;  // optim/schedule_kwargs.h

// A state member of a schedule that follows a metric, in both scheduler.pt and Schedule::state().
struct ScheduleMember {
  enum class Form {
    kNumber,   // a required floating-point number
    kCount,    // an integer
    kRates,    // a list with the learning rate of each parameter group, all equal here
    kAverage,  // a mean of recent values: window_size, values and sum
  };
  const char* name;
  Form form;
};

// The descriptor of a schedule: how to compute it. Name and keys are in the ScheduleNames of the
// same type.
struct ScheduleKind {
  // Exactly one of the two is set. `factor` returns the learning rate's multiplier as a function of
  // the number of updates; `make` builds any other schedule.
  std::function<double(int64_t)> (*factor)(const ScheduleOptions& options,
                                           ScheduleKwargs& kwargs) = nullptr;
  std::unique_ptr<Schedule> (*make)(const ScheduleOptions& options,
                                    ScheduleKwargs& kwargs) = nullptr;
  // For a schedule that follows a metric: its state in scheduler.pt, in the file's order, and the
  // member that identifies such a file; if several types match, the last one wins.
  std::vector<ScheduleMember> members = {};
  const char* recognised_by = nullptr;
  std::string type = {};  // set by the table
};

// The types of config/schedules.def, followed by those added with add_schedule().
[[nodiscard]] const std::deque<ScheduleKind>& schedules();
[[nodiscard]] const ScheduleKind* find_schedule(const std::string& type);  // or nullptr

// Registers a schedule that is not in schedules.def (for tests).
void add_schedule(ScheduleNames names, ScheduleKind kind);

}  // namespace finetune
