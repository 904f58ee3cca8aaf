// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/log.h"
#include "optim/schedule_kwargs.h"

// torch's ReduceLROnPlateau and transformers' GreedyLR. All parameter groups have the same rate
// here, so their lists have one entry.
namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// JSON has no NaN or Inf; as text they stay exact.
Json to_exact_json(double value) {
  return std::isfinite(value) ? Json(value) : Json(format_double(value));
}

constexpr IntegerRange kCounts = {.low = 0};
constexpr NumberRange kExact = {.allow_nonfinite = true};  // as to_exact_json() wrote it

// One entry for each parameter group, all the same here. An absent member keeps `rate`.
void read_rate(const JsonFields& fields, const char* name, double& rate) {
  if (fields.find(name) == nullptr) return;
  const std::vector<double> rates = fields.numbers(name, {.low = 0});
  if (rates.empty() || !std::isfinite(rates.front())) fields.refuse(name, "a list of finite rates");
  rate = rates.front();
}

struct Comparison {
  bool maximize = false;
  bool relative = true;
  double threshold = 1e-4;

  [[nodiscard]] double worst() const { return maximize ? -kInfinity : kInfinity; }
  [[nodiscard]] bool is_better(double value, double best) const {
    if (maximize) {
      return value > (relative ? best * (1.0 + threshold) : best + threshold);
    }
    return value < (relative ? best * (1.0 - threshold) : best - threshold);
  }
};

Comparison read_comparison(const ScheduleOptions& options, ScheduleKwargs& kwargs,
                           const char* threshold_mode, double threshold) {
  Comparison result;
  const char* mode = options.greater_is_better ? "max" : "min";
  result.maximize = kwargs.choice("mode", mode, {"min", "max"}) == "max";
  result.threshold = kwargs.number("threshold", threshold);
  result.relative = kwargs.choice("threshold_mode", threshold_mode, {"rel", "abs"}) == "rel";
  return result;
}

// The common part of both: a changing rate, the best value so far, `patience` and `cooldown`.
class MetricSchedule : public Schedule {
 public:
  MetricSchedule(const ScheduleOptions& options, Comparison comparison)
      : type_(options.type),
        comparison_(comparison),
        initial_rate_(options.learning_rate),
        rate_(options.learning_rate),
        best_(comparison.worst()) {}

  [[nodiscard]] double learning_rate(int64_t) const override { return rate_; }
  [[nodiscard]] bool follows_metric() const override { return true; }

  [[nodiscard]] Json state() const override {
    return {{"type", type_},
            {"best", to_exact_json(best_)},
            {"num_bad_epochs", bad_},
            {"cooldown_counter", cooldown_counter_},
            {"last_epoch", observed_},
            {"_last_lr", Json::array({rate_})},
            {"_init_lrs", Json::array({initial_rate_})}};
  }

  void load_state(const Json& state) override {
    const JsonFields fields(state, "the schedule's state", ErrorKind::kCheckpoint);
    if (state.value("type", Json(type_)) != type_) return;
    load_counters(fields);
  }

 protected:
  virtual void load_counters(const JsonFields& fields) {
    double stored_initial = initial_rate_;
    fields.read("best", best_, kExact);
    fields.read("num_bad_epochs", bad_, kCounts);
    fields.read("cooldown_counter", cooldown_counter_, kCounts);
    fields.read("last_epoch", observed_, kCounts);
    read_rate(fields, "_last_lr", rate_);
    read_rate(fields, "_init_lrs", stored_initial);
    if (stored_initial != initial_rate_) {
      rate_ = stored_initial > 0 ? rate_ * (initial_rate_ / stored_initial) : initial_rate_;
    }
  }

  std::string type_;
  Comparison comparison_;
  double initial_rate_;
  double rate_;
  double best_;
  int64_t bad_ = 0;
  int64_t cooldown_counter_ = 0;
  int64_t observed_ = 0;
};

struct PlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;
  int64_t cooldown = 0;
  double min_rate = 0;
  double eps = 1e-8;
};

class PlateauSchedule final : public MetricSchedule {
 public:
  PlateauSchedule(const ScheduleOptions& options, Comparison comparison, PlateauOptions plateau)
      : MetricSchedule(options, comparison), plateau_(plateau) {}

  void observe(double metric) override {
    ++observed_;
    if (comparison_.is_better(metric, best_)) {
      best_ = metric;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooldown_counter_ > 0) {
      --cooldown_counter_;
      bad_ = 0;
    }
    if (bad_ > plateau_.patience) {
      const double reduced = std::max(rate_ * plateau_.factor, plateau_.min_rate);
      if (rate_ - reduced > plateau_.eps) rate_ = reduced;
      cooldown_counter_ = plateau_.cooldown;
      bad_ = 0;
    }
  }

 private:
  PlateauOptions plateau_;
};

// Mean of the last values. The running sum is updated as in transformers, with the same rounding.
struct StreamingAverage {
  int64_t window = 50;
  std::deque<double> values;
  double sum = 0;

  double add(double value) {
    values.push_back(value);
    sum += value;
    while (static_cast<int64_t>(values.size()) > window) {
      sum -= values.front();
      values.pop_front();
    }
    return sum / static_cast<double>(values.size());
  }
};

struct GreedyOptions {
  double factor = 0.95;
  int64_t patience = 10;
  int64_t cooldown = 0;
  int64_t warmup = 0;
  double min_rate = 1e-3;
  double max_rate = 1.0;
  double eps = 1e-8;
  bool verbose = false;
  bool smooth = false;
  int64_t window = 50;
  int64_t reset_start = 500;
};

class GreedySchedule final : public MetricSchedule {
 public:
  GreedySchedule(const ScheduleOptions& options, Comparison comparison, GreedyOptions greedy)
      : MetricSchedule(options, comparison), greedy_(greedy), reset_start_(greedy.reset_start) {
    average_.window = greedy.window;
  }

  void observe(double metric) override {
    const double current = greedy_.smooth ? average_.add(metric) : metric;
    ++observed_;
    if (cooldown_counter_ > 0 || warmup_counter_ > 0) {
      --(cooldown_counter_ > 0 ? cooldown_counter_ : warmup_counter_);
      bad_ = good_ = 0;
      return;
    }
    if (comparison_.is_better(current, best_)) {
      best_ = current;
      bad_ = 0;
      ++good_;
    } else {
      ++bad_;
      good_ = 0;
    }
    if (good_ > greedy_.patience) {
      increase();
    } else if (bad_ > greedy_.patience) {
      reduce();
    }
  }

  [[nodiscard]] Json state() const override {
    Json result = MetricSchedule::state();
    result["num_good_epochs"] = good_;
    result["warmup_counter"] = warmup_counter_;
    result["reset_start"] = reset_start_;
    if (greedy_.smooth) {
      Json values = Json::array();
      for (const double value : average_.values) values.push_back(to_exact_json(value));
      result["_streaming_avg"] = {{"window_size", average_.window},
                                  {"values", std::move(values)},
                                  {"sum", to_exact_json(average_.sum)}};
    }
    return result;
  }

 protected:
  void load_counters(const JsonFields& fields) override {
    MetricSchedule::load_counters(fields);
    fields.read("num_good_epochs", good_, kCounts);
    fields.read("warmup_counter", warmup_counter_, kCounts);
    fields.read("reset_start", reset_start_, kCounts);
    if (!greedy_.smooth || fields.find("_streaming_avg") == nullptr) return;
    const JsonFields average = fields.fields("_streaming_avg");
    if (average.find("values") != nullptr) {
      const std::vector<double> values = average.numbers("values", kExact);
      average_.values.assign(values.begin(), values.end());
    }
    average.read("sum", average_.sum, kExact);
  }

 private:
  void increase() {
    const double increased = std::min(rate_ / greedy_.factor, greedy_.max_rate);
    if (increased - rate_ > greedy_.eps) move_to(increased, "increasing");
    reset_start_ = greedy_.reset_start;
    warmup_counter_ = greedy_.warmup;
    good_ = 0;
  }

  // As in transformers, the counters are also set after a reset.
  void reduce() {
    const double reduced = std::max(rate_ * greedy_.factor, greedy_.min_rate);
    if (rate_ - reduced > greedy_.eps) move_to(reduced, "reducing");
    if (rate_ <= greedy_.min_rate && --reset_start_ <= 0) reset();
    cooldown_counter_ = greedy_.cooldown;
    bad_ = 0;
  }

  void reset() {
    rate_ = initial_rate_;
    best_ = comparison_.worst();
    good_ = 0;
    warmup_counter_ = 0;
    reset_start_ = greedy_.reset_start;
    average_ = StreamingAverage{.window = greedy_.window, .values = {}, .sum = 0};
    if (greedy_.verbose) log::info("learning rate schedule: reset to its initial state");
  }

  void move_to(double rate, const char* what) {
    rate_ = rate;
    if (!greedy_.verbose) return;
    log::info("evaluation " + std::to_string(observed_) + ": " + what + " the learning rate to " +
              format_double(rate));
  }

  GreedyOptions greedy_;
  StreamingAverage average_;
  int64_t good_ = 0;
  int64_t warmup_counter_ = 0;
  int64_t reset_start_;
};

constexpr double kJustBelowOne = 1.0 - 0x1p-53;

std::unique_ptr<Schedule> make_plateau_schedule(const ScheduleOptions& options,
                                                ScheduleKwargs& kwargs) {
  const Comparison comparison = read_comparison(options, kwargs, "rel", 1e-4);
  PlateauOptions plateau;
  plateau.factor = kwargs.number("factor", plateau.factor, {.min = 0.0, .max = kJustBelowOne});
  plateau.patience = kwargs.integer("patience", plateau.patience, 0);
  plateau.cooldown = kwargs.integer("cooldown", plateau.cooldown, 0);
  plateau.min_rate = kwargs.number("min_lr", plateau.min_rate, {.min = 0.0});
  plateau.eps = kwargs.number("eps", plateau.eps, {.min = 0.0});
  return std::make_unique<PlateauSchedule>(options, comparison, plateau);
}

std::unique_ptr<Schedule> make_greedy_schedule(const ScheduleOptions& options,
                                               ScheduleKwargs& kwargs) {
  const Comparison comparison = read_comparison(options, kwargs, "abs", 1e-6);
  GreedyOptions greedy;
  greedy.factor = kwargs.number("factor", greedy.factor, {.min = 1e-9, .max = kJustBelowOne});
  greedy.patience = kwargs.integer("patience", greedy.patience, 0);
  greedy.cooldown = kwargs.integer("cooldown", greedy.cooldown, 0);
  greedy.warmup = kwargs.integer("warmup", greedy.warmup, 0);
  greedy.min_rate = kwargs.number("min_lr", greedy.min_rate, {.min = 0.0});
  greedy.max_rate = kwargs.number("max_lr", greedy.max_rate, {.min = 0.0});
  greedy.eps = kwargs.number("eps", greedy.eps, {.min = 0.0});
  greedy.verbose = kwargs.flag("verbose", greedy.verbose);
  greedy.smooth = kwargs.flag("smooth", greedy.smooth);
  greedy.window = kwargs.integer("window_size", greedy.window, 1);
  greedy.reset_start = kwargs.integer("reset_start", greedy.reset_start, 0);
  return std::make_unique<GreedySchedule>(options, comparison, greedy);
}

using enum ScheduleMember::Form;

}  // namespace

// ReduceLROnPlateau stores no initial rate.
ScheduleKind reduce_lr_on_plateau_schedule() {
  return {.make = make_plateau_schedule,
          .members = {{"best", kNumber},
                      {"num_bad_epochs", kCount},
                      {"cooldown_counter", kCount},
                      {"last_epoch", kCount},
                      {"_last_lr", kRates}},
          .recognised_by = "num_bad_epochs"};
}

ScheduleKind greedy_schedule() {
  return {.make = make_greedy_schedule,
          .members = {{"best", kNumber},
                      {"num_bad_epochs", kCount},
                      {"cooldown_counter", kCount},
                      {"last_epoch", kCount},
                      {"num_good_epochs", kCount},
                      {"warmup_counter", kCount},
                      {"reset_start", kCount},
                      {"_last_lr", kRates},
                      {"_init_lrs", kRates},
                      {"_streaming_avg", kAverage}},
          .recognised_by = "num_good_epochs"};
}

}  // namespace finetune
