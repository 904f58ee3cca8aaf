// SPDX-License-Identifier: MIT
#include "finetune/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

// Learning rates of transformers' get_scheduler, written by make_schedules.py.
const Json& goldens() {
  static const Json json = read_json_file(source_dir() + "/tests/fixtures/optim/schedules.json");
  return json;
}

ScheduleOptions options_of(const Json& golden) {
  ScheduleOptions options;
  options.type = golden.at("type").get<std::string>();
  options.learning_rate = golden.at("learning_rate").get<double>();
  options.warmup_steps = golden.value("warmup_steps", int64_t{5});
  options.max_steps = golden.value("max_steps", int64_t{40});
  options.kwargs_json = golden.at("kwargs").dump();
  return options;
}

// 1e-12 relative; if a cosine cancelled to almost nothing, relative to the peak.
void expect_same_rate(double actual, double expected, const ScheduleOptions& options) {
  EXPECT_NEAR(actual, expected, 1e-12 * std::abs(expected) + 1e-15 * options.learning_rate)
      << options.type << " " << options.kwargs_json << " warmup " << options.warmup_steps;
}

// The metrics of the goldens; schedules that smooth did not get the NaN.
std::vector<double> metrics_for(const Json& golden) {
  std::vector<double> result;
  for (const Json& value : goldens().at("metrics")) {
    if (!value.is_null()) {
      result.push_back(value.get<double>());
    } else if (!golden.at("kwargs").value("smooth", false)) {
      result.push_back(std::numeric_limits<double>::quiet_NaN());
    }
  }
  return result;
}

std::string message_of(const ScheduleOptions& options) {
  try {
    static_cast<void>(make_schedule(options));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

ScheduleOptions with_kwargs(const std::string& type, const std::string& kwargs) {
  return {.type = type,
          .learning_rate = 1e-3,
          .warmup_steps = 2,
          .max_steps = 10,
          .kwargs_json = kwargs,
          .greater_is_better = false};
}

TEST(Schedule, EqualsTransformersOverWholeCurves) {
  for (const Json& golden : goldens().at("curves")) {
    const ScheduleOptions options = options_of(golden);
    const auto schedule = make_schedule(options);
    const auto updates = golden.at("updates").get<std::vector<int64_t>>();
    const auto rates = golden.at("rates").get<std::vector<double>>();
    ASSERT_EQ(updates.size(), rates.size());
    for (size_t i = 0; i < updates.size(); ++i) {
      SCOPED_TRACE(updates[i]);
      expect_same_rate(schedule->learning_rate(updates[i]), rates[i], options);
    }
  }
}

TEST(Schedule, GoldensCoverEveryType) {
  std::set<std::string> covered;
  for (const char* part : {"curves", "followers"}) {
    for (const Json& golden : goldens().at(part))
      covered.insert(golden.at("type").get<std::string>());
  }
  std::set<std::string> types;
  for (const ScheduleKind& kind : schedules()) types.insert(kind.type);
  EXPECT_EQ(covered, types);
  EXPECT_EQ(schedules().size(), 12U);
}

// An unknown key is refused with its name; null counts as absent.
TEST(Schedule, TakesTheArgumentsOfItsRow) {
  for (const ScheduleNames& names : schedule_names()) {
    Json kwargs = Json::object();
    for (const std::string& name : names.arguments) kwargs[name] = nullptr;
    if (!names.one_of.empty()) kwargs[names.one_of.front()] = 1;
    ScheduleOptions options{.type = names.type, .max_steps = 40, .kwargs_json = kwargs.dump()};
    EXPECT_EQ(message_of(options), "") << names.type;
    EXPECT_EQ(make_schedule(options)->follows_metric(), names.follows_metric) << names.type;
    EXPECT_EQ(find_schedule(names.type)->members.empty(), !names.follows_metric) << names.type;
  }
}

TEST(Schedule, FollowsTheMetricAsTransformersDoes) {
  for (const Json& golden : goldens().at("followers")) {
    const ScheduleOptions options = options_of(golden);
    const auto schedule = make_schedule(options);
    EXPECT_TRUE(schedule->follows_metric());
    const auto rates = golden.at("rates").get<std::vector<double>>();
    const std::vector<double> metrics = metrics_for(golden);
    ASSERT_EQ(metrics.size(), rates.size());
    for (size_t i = 0; i < metrics.size(); ++i) {
      SCOPED_TRACE(i);
      schedule->observe(metrics[i]);
      expect_same_rate(schedule->learning_rate(7), rates[i], options);
    }
  }
}

TEST(Schedule, GoesOnFromItsWrittenStateWithTheSameBits) {
  for (const Json& golden : goldens().at("followers")) {
    const ScheduleOptions options = options_of(golden);
    const std::vector<double> metrics = metrics_for(golden);
    const auto unbroken = make_schedule(options);
    auto resumed = make_schedule(options);
    for (const double metric : metrics) {
      unbroken->observe(metric);
      resumed->observe(metric);
      const std::string text = resumed->state().dump();
      resumed = make_schedule(options);
      resumed->load_state(parse_json(text, "state"));
      ASSERT_EQ(resumed->learning_rate(0), unbroken->learning_rate(0)) << text;
      ASSERT_EQ(resumed->state().dump(), text);
    }
  }
}

TEST(Schedule, KeepsItsAverageExactAfterANaN) {
  const auto schedule = make_schedule(with_kwargs("greedy", R"({"smooth": true})"));
  schedule->observe(std::numeric_limits<double>::quiet_NaN());
  const auto resumed = make_schedule(with_kwargs("greedy", R"({"smooth": true})"));
  resumed->load_state(parse_json(schedule->state().dump(), "state"));
  EXPECT_EQ(resumed->state(), schedule->state());
  EXPECT_EQ(resumed->state()["_streaming_avg"]["sum"], "nan");
}

TEST(Schedule, OfPureFunctionsHasNoState) {
  const auto schedule = make_schedule(with_kwargs("linear", ""));
  schedule->observe(1.0);
  EXPECT_FALSE(schedule->follows_metric());
  EXPECT_EQ(schedule->state(), Json({{"type", "linear"}}));
  EXPECT_NO_THROW(schedule->load_state(schedule->state()));
}

TEST(Schedule, StartsAfreshWhereTheStoredTypeIsAnother) {
  const auto plateau = make_schedule(with_kwargs("reduce_lr_on_plateau", R"({"patience": 0})"));
  for (int i = 0; i < 3; ++i) plateau->observe(1.0);
  const auto greedy = make_schedule(with_kwargs("greedy", ""));
  const Json fresh = greedy->state();
  greedy->load_state(plateau->state());
  EXPECT_EQ(greedy->state(), fresh);
}

TEST(Schedule, AppliesAChangedLearningRateToTheStoredOne) {
  ScheduleOptions options = with_kwargs("reduce_lr_on_plateau", R"({"patience": 0})");
  const auto before = make_schedule(options);
  for (int i = 0; i < 2; ++i) before->observe(1.0);
  ASSERT_DOUBLE_EQ(before->learning_rate(0), 1e-4);
  options.learning_rate = 5e-3;
  const auto after = make_schedule(options);
  after->load_state(before->state());
  EXPECT_DOUBLE_EQ(after->learning_rate(0), 5e-4);
}

TEST(Schedule, RisesWithTheMetricWhereGreaterIsBetter) {
  ScheduleOptions options = with_kwargs("reduce_lr_on_plateau", R"({"patience": 0})");
  options.greater_is_better = true;
  const auto schedule = make_schedule(options);
  for (const double accuracy : {0.5, 0.6, 0.7}) schedule->observe(accuracy);
  EXPECT_EQ(schedule->learning_rate(0), 1e-3);
  schedule->observe(0.6);
  EXPECT_DOUBLE_EQ(schedule->learning_rate(0), 1e-4);
}

TEST(Schedule, RefusesAStateThatIsNotOne) {
  const auto schedule = make_schedule(with_kwargs("greedy", R"({"smooth": true})"));
  for (const char* text :
       {R"([])", R"({"best": []})", R"({"num_bad_epochs": -1})", R"({"last_epoch": 1.5})",
        R"({"_last_lr": []})", R"({"_last_lr": ["nan"]})", R"({"_streaming_avg": 3})",
        R"({"_streaming_avg": {"values": 1}})"}) {
    try {
      schedule->load_state(parse_json(text, "state"));
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint) << text;
    }
  }
}

TEST(Schedule, NamesTheKnownTypesWhereOneIsUnknown) {
  EXPECT_GOLDEN(message_of(with_kwargs("cosin", "")));
}

TEST(Schedule, NamesTheKnownKwargsWhereOneIsUnknown) {
  EXPECT_GOLDEN(message_of(with_kwargs("polynomial", R"({"powr": 2})")));
  EXPECT_GOLDEN(message_of(with_kwargs("linear", R"({"num_cycles": 2})")));
}

TEST(Schedule, RefusesKwargsThatCannotBeMeant) {
  const std::vector<std::array<const char*, 3>> cases = {
      {"cosine", R"({"num_cycles": "two"})", "must be a number"},
      {"cosine", R"([1])", "must be a mapping"},
      {"cosine", R"({"num_cycles")", "not valid JSON"},
      {"polynomial", R"({"lr_end": 0.5})", "must be smaller than learning_rate"},
      {"cosine_with_min_lr", R"({})", "one of min_lr"},
      {"cosine_with_min_lr", R"({"min_lr": 0, "min_lr_rate": 0})", "only one"},
      {"inverse_sqrt", R"({"timescale": 0})", "timescale"},
      {"warmup_stable_decay", R"({})", "num_decay_steps"},
      {"warmup_stable_decay", R"({"num_decay_steps": 2.5})", "whole number"},
      {"warmup_stable_decay", R"({"num_decay_steps": 2, "decay_type": "exp"})", "1-sqrt"},
      {"reduce_lr_on_plateau", R"({"factor": 1.0})", "factor"},
      {"reduce_lr_on_plateau", R"({"mode": "least"})", "min, max"},
      {"greedy", R"({"smooth": 3})", "true or false"},
  };
  for (const auto& [type, kwargs, expected] : cases) {
    EXPECT_THAT(message_of(with_kwargs(type, kwargs)),
                AllOf(HasSubstr("lr_scheduler_kwargs"), HasSubstr(expected)))
        << type << " " << kwargs;
  }
}

TEST(Schedule, ReadsNumbersThatAreWrittenAsText) {
  const auto text = make_schedule(with_kwargs("polynomial", R"({"power": "2", "lr_end": "1e-6"})"));
  const auto number = make_schedule(with_kwargs("polynomial", R"({"power": 2, "lr_end": 1e-6})"));
  EXPECT_EQ(text->learning_rate(5), number->learning_rate(5));
}

TEST(Schedule, TreatsANullAsAbsent) {
  EXPECT_EQ(message_of(with_kwargs("cosine", "null")), "");
  EXPECT_EQ(message_of(with_kwargs("cosine_with_min_lr", R"({"min_lr": null, "min_lr_rate": 0})")),
            "");
}

}  // namespace
}  // namespace finetune
