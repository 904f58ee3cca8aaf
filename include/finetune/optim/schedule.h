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

// Learning rate schedules: those of transformers' lr_scheduler_type, number for number.
namespace finetune {

struct ScheduleOptions {
  std::string type = "linear";     // one of schedules()
  double learning_rate = 5e-5;     // the peak, what every factor multiplies
  int64_t warmup_steps = 0;        // in updates; a ratio has been resolved
  int64_t max_steps = 0;           // updates of the whole run
  std::string kwargs_json;         // lr_scheduler_kwargs as a JSON object; empty: none
  bool greater_is_better = false;  // `mode` where kwargs have none, of those that follow a metric
};

// Most types are pure functions of the number of updates, so any position is reached at once and a
// changed max_steps or learning_rate holds from there on. Those that follow the evaluated metric
// keep a small state.
class Schedule {
 public:
  virtual ~Schedule() = default;

  // The rate of the update that follows `updates` applied ones; any updates >= 0, also beyond
  // max_steps (what LambdaLR gives there).
  [[nodiscard]] virtual double learning_rate(int64_t updates) const = 0;

  // After each evaluation: the value of metric_for_best_model. NaN counts as no improvement.
  // Without effect where follows_metric() is false.
  virtual void observe(double metric);
  [[nodiscard]] virtual bool follows_metric() const { return false; }

  // An object with "type" and, where the schedule follows a metric, transformers' names for its
  // counters and rates; doubles are exact, a value that is not finite is text ("inf", "nan").
  // load_state leaves a fresh schedule as it is where the stored type is another (the key was
  // changed between sessions); a changed learning_rate scales the stored rate. Anything malformed
  // throws Error(kCheckpoint).
  [[nodiscard]] virtual nlohmann::ordered_json state() const = 0;
  virtual void load_state(const nlohmann::ordered_json& state) = 0;
};

// Throws Error(kConfig) that names lr_scheduler_type or lr_scheduler_kwargs and what is known.
[[nodiscard]] std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options);

class ScheduleKwargs;  // optim/schedule_kwargs.h

// A member of the state of a schedule that follows a metric, in scheduler.pt and in
// Schedule::state() alike.
struct ScheduleMember {
  enum class Form {
    kNumber,   // a floating-point number; a file must have it
    kCount,    // an integer
    kRates,    // a list with the learning rate of each parameter group, all the same here
    kAverage,  // a mean of the last values: window_size, values and sum
  };
  const char* name;
  Form form;
};

// The descriptor. Its other half, names and keys, is the ScheduleNames of the same type.
struct ScheduleKind {
  // One of the two. A function of the number of updates that the learning rate is multiplied with,
  // or anything else.
  std::function<double(int64_t)> (*factor)(const ScheduleOptions& options,
                                           ScheduleKwargs& kwargs) = nullptr;
  std::unique_ptr<Schedule> (*make)(const ScheduleOptions& options,
                                    ScheduleKwargs& kwargs) = nullptr;
  // Of a schedule that follows a metric: its state in scheduler.pt, in the file's order, and the
  // member by which a file is recognised; the last type whose member is there counts.
  std::vector<ScheduleMember> members = {};
  const char* recognised_by = nullptr;
  std::string type = {};  // set by the table
};

// Those of config/schedules.def, then those added.
[[nodiscard]] const std::deque<ScheduleKind>& schedules();
[[nodiscard]] const ScheduleKind* find_schedule(const std::string& type);  // or nullptr

// Adds both halves of a schedule that is not in schedules.def (tests).
void add_schedule(ScheduleNames names, ScheduleKind kind);

}  // namespace finetune
