// SPDX-License-Identifier: MIT
#include "finetune/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "optim/schedule_kwargs.h"

// All operations are in the order of transformers/optimization.py, so that results agree to the
// last bit wherever cos and pow do.
namespace finetune {

#define FINETUNE_SCHEDULE(TYPE, ...) ScheduleKind TYPE##_schedule();
#include "finetune/config/schedules.def"
#undef FINETUNE_SCHEDULE

namespace {

using std::numbers::pi;
using Factor = std::function<double(int64_t)>;

// learning rate = base * factor(updates), as in LambdaLR.
class FactorSchedule final : public Schedule {
 public:
  FactorSchedule(std::string type, double base, Factor factor)
      : type_(std::move(type)), base_(base), factor_(std::move(factor)) {}

  [[nodiscard]] double learning_rate(int64_t updates) const override {
    FT_CHECK(updates >= 0, "a schedule starts at 0 updates");
    return base_ * factor_(updates);
  }
  [[nodiscard]] nlohmann::ordered_json state() const override { return {{"type", type_}}; }
  void load_state(const nlohmann::ordered_json& state) override {
    if (!state.is_object())
      throw Error(ErrorKind::kCheckpoint, "the schedule's state is no object");
  }

 private:
  std::string type_;
  double base_;
  Factor factor_;
};

double real(int64_t value) { return static_cast<double>(value); }

double at_least_one(int64_t steps) { return real(std::max<int64_t>(1, steps)); }

// Returns the fraction of the steps after warm-up that is done; above 1 after max_steps.
double progress_of(int64_t step, const ScheduleOptions& o) {
  return real(step - o.warmup_steps) / at_least_one(o.max_steps - o.warmup_steps);
}

// Linear warm-up to the peak, then `after`.
Factor with_warmup(const ScheduleOptions& options, Factor after) {
  return [warmup = options.warmup_steps, after = std::move(after)](int64_t step) {
    return step < warmup ? real(step) / at_least_one(warmup) : after(step);
  };
}

Factor linear(const ScheduleOptions& o, ScheduleKwargs&) {
  return with_warmup(o, [o](int64_t step) {
    return std::max(0.0, real(o.max_steps - step) / at_least_one(o.max_steps - o.warmup_steps));
  });
}

Factor cosine_to(const ScheduleOptions& o, double num_cycles, double min_rate) {
  return with_warmup(o, [o, num_cycles, min_rate](int64_t step) {
    const double factor = 0.5 * (1.0 + std::cos(pi * num_cycles * 2.0 * progress_of(step, o)));
    return std::max(0.0, factor * (1 - min_rate) + min_rate);
  });
}

Factor cosine(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  return cosine_to(o, kwargs.number("num_cycles", 0.5), 0.0);
}

Factor cosine_with_restarts(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const double num_cycles = kwargs.number("num_cycles", 1.0, {.min = 0.0});
  return with_warmup(o, [o, num_cycles](int64_t step) {
    const double progress = progress_of(step, o);
    if (progress >= 1.0) return 0.0;
    return std::max(0.0, 0.5 * (1.0 + std::cos(pi * std::fmod(num_cycles * progress, 1.0))));
  });
}

Factor polynomial(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const double end = kwargs.number("lr_end", 1e-7, {.min = 0.0});
  const double power = kwargs.number("power", 1.0, {.min = 0.0});
  if (!(o.learning_rate > end)) {
    kwargs.reject("lr_end", "(" + format_double(end) + ") must be smaller than learning_rate (" +
                                format_double(o.learning_rate) + ")");
  }
  return with_warmup(o, [o, end, power](int64_t step) {
    const int64_t decay_steps = o.max_steps - o.warmup_steps;
    // If all steps are warm-up, transformers divides by zero at the last one.
    if (step > o.max_steps || decay_steps <= 0) return end / o.learning_rate;
    const double remaining = 1 - real(step - o.warmup_steps) / real(decay_steps);
    const double decay = (o.learning_rate - end) * std::pow(remaining, power) + end;
    return decay / o.learning_rate;
  });
}

Factor constant(const ScheduleOptions&, ScheduleKwargs&) {
  return [](int64_t) { return 1.0; };
}

Factor constant_with_warmup(const ScheduleOptions& o, ScheduleKwargs&) {
  return with_warmup(o, [](int64_t) { return 1.0; });
}

Factor inverse_sqrt(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const double timescale = kwargs.number("timescale", {.min = 1e-9})
                               .value_or(o.warmup_steps > 0 ? real(o.warmup_steps) : 10000.0);
  return with_warmup(o, [shift = timescale - real(o.warmup_steps), timescale](int64_t step) {
    return 1.0 / std::sqrt((real(step) + shift) / timescale);
  });
}

double min_rate_of(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const std::optional<double> min_lr = kwargs.number("min_lr", {.min = 0.0});
  const std::optional<double> min_lr_rate = kwargs.number("min_lr_rate", {.min = 0.0});
  if (min_lr.has_value() == min_lr_rate.has_value()) {
    kwargs.reject("", min_lr ? "give only one of min_lr and min_lr_rate"
                             : "one of min_lr (a rate) and min_lr_rate (a share of the peak) is "
                               "needed");
  }
  if (min_lr && o.learning_rate == 0.0) kwargs.reject("min_lr", "needs a learning_rate above 0");
  return min_lr ? *min_lr / o.learning_rate : *min_lr_rate;
}

Factor cosine_with_min_lr(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const double num_cycles = kwargs.number("num_cycles", 0.5);
  return cosine_to(o, num_cycles, min_rate_of(o, kwargs));
}

Factor cosine_warmup_with_min_lr(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const double num_cycles = kwargs.number("num_cycles", 0.5);
  const double min_rate = min_rate_of(o, kwargs);
  const std::optional<double> start = kwargs.number("warmup_lr_rate", {.min = 0.0});
  return [o, num_cycles, min_rate, start](int64_t step) {
    if (step < o.warmup_steps) {
      if (!start) return (real(step) + 1.0) / at_least_one(o.warmup_steps);
      return *start + (1.0 - *start) * real(step) / at_least_one(o.warmup_steps - 1);
    }
    const double progress =
        (real(step - o.warmup_steps) + 1.0) / at_least_one(o.max_steps - o.warmup_steps);
    const double factor = 0.5 * (1.0 + std::cos(pi * num_cycles * 2.0 * progress));
    return std::max(0.0, factor * (1 - min_rate) + min_rate);
  };
}

Factor warmup_stable_decay(const ScheduleOptions& o, ScheduleKwargs& kwargs) {
  const std::vector<std::string> shapes = {"linear", "cosine", "1-sqrt"};
  const std::optional<int64_t> decay_steps = kwargs.integer("num_decay_steps", 0);
  const std::optional<int64_t> stable_steps = kwargs.integer("num_stable_steps", 0);
  const std::string warmup_type = kwargs.choice("warmup_type", "linear", shapes);
  const std::string decay_type = kwargs.choice("decay_type", "cosine", shapes);
  const double min_ratio = kwargs.number("min_lr_ratio", 0.0, {.min = 0.0});
  const double num_cycles = kwargs.number("num_cycles", 0.5);
  if (!decay_steps) kwargs.reject("num_decay_steps", "is needed: the length of the decay");
  const int64_t decay = *decay_steps;
  const int64_t warmup = o.warmup_steps;
  const int64_t stable = stable_steps.value_or(o.max_steps - warmup - decay);
  const auto scaled = [min_ratio](double factor) {
    return std::max(0.0, factor * (1.0 - min_ratio) + min_ratio);
  };
  return [=](int64_t step) {
    if (step < warmup) {
      const double progress = real(step) / at_least_one(warmup);
      if (warmup_type == "linear") return scaled(progress);
      if (warmup_type == "cosine") return scaled(0.5 * (1.0 - std::cos(pi * progress)));
      return scaled(1.0 - std::sqrt(1.0 - progress));
    }
    if (step < warmup + stable) return 1.0;
    if (step >= warmup + stable + decay) return min_ratio;
    const double progress = real(step - warmup - stable) / at_least_one(decay);
    if (decay_type == "linear") return scaled(1.0 - progress);
    if (decay_type == "cosine") {
      return scaled(0.5 * (1.0 + std::cos(pi * num_cycles * 2.0 * progress)));
    }
    return scaled(1.0 - std::sqrt(progress));
  };
}

ScheduleKind typed_schedule(ScheduleKind kind, std::string type) {
  kind.type = std::move(type);
  return kind;
}

std::deque<ScheduleKind>& schedule_kinds() {
  static std::deque<ScheduleKind> rows = {
#define FINETUNE_SCHEDULE(TYPE, ...) typed_schedule(TYPE##_schedule(), #TYPE),
#include "finetune/config/schedules.def"
#undef FINETUNE_SCHEDULE
  };
  return rows;
}

}  // namespace

ScheduleKind linear_schedule() { return {.factor = linear}; }
ScheduleKind cosine_schedule() { return {.factor = cosine}; }
ScheduleKind cosine_with_restarts_schedule() { return {.factor = cosine_with_restarts}; }
ScheduleKind polynomial_schedule() { return {.factor = polynomial}; }
ScheduleKind constant_schedule() { return {.factor = constant}; }
ScheduleKind constant_with_warmup_schedule() { return {.factor = constant_with_warmup}; }
ScheduleKind inverse_sqrt_schedule() { return {.factor = inverse_sqrt}; }
ScheduleKind cosine_with_min_lr_schedule() { return {.factor = cosine_with_min_lr}; }
ScheduleKind cosine_warmup_with_min_lr_schedule() { return {.factor = cosine_warmup_with_min_lr}; }
ScheduleKind warmup_stable_decay_schedule() { return {.factor = warmup_stable_decay}; }

void Schedule::observe(double) {}

const std::deque<ScheduleKind>& schedules() { return schedule_kinds(); }

const ScheduleKind* find_schedule(const std::string& type) {
  const auto found = std::ranges::find(schedule_kinds(), type, &ScheduleKind::type);
  return found == schedule_kinds().end() ? nullptr : &*found;
}

void add_schedule(ScheduleNames names, ScheduleKind kind) {
  schedule_kinds().push_back(typed_schedule(std::move(kind), names.type));
  add_schedule_names(std::move(names));
}

std::unique_ptr<Schedule> make_schedule(const ScheduleOptions& options) {
  const ScheduleKind* kind = find_schedule(options.type);
  if (kind == nullptr) {
    std::string known;
    for (const ScheduleKind& one : schedules()) known += (known.empty() ? "" : ", ") + one.type;
    throw Error(ErrorKind::kConfig,
                "lr_scheduler_type: unknown schedule '" + options.type + "': known are " + known);
  }
  if (!std::isfinite(options.learning_rate) || options.learning_rate < 0) {
    throw Error(ErrorKind::kConfig, "learning_rate: must be a number of at least 0, not " +
                                        format_double(options.learning_rate));
  }
  if (options.warmup_steps < 0) {
    throw Error(ErrorKind::kConfig,
                "warmup_steps: must be at least 0, not " + std::to_string(options.warmup_steps));
  }
  ScheduleKwargs kwargs(options);
  std::unique_ptr<Schedule> schedule =
      kind->make ? kind->make(options, kwargs)
                 : std::make_unique<FactorSchedule>(options.type, options.learning_rate,
                                                    kind->factor(options, kwargs));
  kwargs.finish();
  return schedule;
}

}  // namespace finetune
