// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// Learning rate schedules: those of transformers' lr_scheduler_type, number for number.
namespace finetune {

struct ScheduleOptions {
  std::string type = "linear";  // one of schedule_types()
  double learning_rate = 5e-5;  // the peak, what every factor multiplies
  int64_t warmup_steps = 0;     // in updates; a ratio has been resolved
  int64_t max_steps = 0;        // updates of the whole run
  std::string kwargs_json;      // lr_scheduler_kwargs as a JSON object; empty: none
  bool greater_is_better =
      false;  // `mode` of reduce_lr_on_plateau and greedy where kwargs have none
};

// All types but reduce_lr_on_plateau and greedy are pure functions of the number of updates, so any
// position is reached at once and a changed max_steps or learning_rate holds from there on. Those
// two follow the evaluated metric and keep a small state.
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

// The twelve names, in transformers' order.
[[nodiscard]] const std::vector<std::string>& schedule_types();

}  // namespace finetune
