// SPDX-License-Identifier: MIT
#include "finetune/state/scheduler_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/optim/schedule.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using testing::message_of;

const std::string kData = source_dir() + "/tests/fixtures/state/";
constexpr std::pair<const char*, const char*> kTypes[] = {{"plateau", "reduce_lr_on_plateau"},
                                                          {"greedy", "greedy"}};

Json golden() {
  const std::string path = kData + "schedulers.json";
  return parse_json(FileSystem::local().read_all(path), path);
}

std::unique_ptr<Schedule> make(const char* name, const char* type) {
  ScheduleOptions options;
  options.type = type;
  options.learning_rate = 1e-3;
  options.max_steps = 100;
  options.kwargs_json = golden()[name]["kwargs"].dump();
  return make_schedule(options);
}

TorchValue file_of(const std::string& name) {
  return read_torch_file(FileSystem::local(), kData + name + ".pt");
}

Json state_of(const TorchValue& value) { return metric_schedule_from_torch(value, "x").value(); }

TEST(ForeignSchedule, GoesOnWhereThatOfTransformersStopped) {
  for (const auto& [name, type] : kTypes) {
    const auto schedule = make(name, type);
    schedule->load_state(state_of(file_of(name)));
    const Json rates = golden()[name]["rates"];
    EXPECT_EQ(schedule->learning_rate(0), rates[0].get<double>()) << name;
    const Json metrics = golden()["more"];
    for (size_t i = 0; i < metrics.size(); ++i) {
      schedule->observe(metrics[i].get<double>());
      EXPECT_EQ(schedule->learning_rate(0), rates[i + 1].get<double>()) << name << " " << i;
    }
  }
}

TEST(ForeignSchedule, IsWrittenWithTheValuesOfTransformers) {
  for (const auto& [name, type] : kTypes) {
    const auto schedule = make(name, type);
    const Json metrics = golden()["metrics"];
    for (const Json& metric : metrics) schedule->observe(metric.get<double>());
    const TorchValue ours = metric_schedule_to_torch(schedule->state(), {1.0, 1.0});
    EXPECT_EQ(state_of(ours), state_of(file_of(name))) << name;
    for (const auto& [key, value] : ours.as_dict().items) {
      EXPECT_NE(file_of(name).find(key), nullptr) << name << " " << std::get<std::string>(key);
    }
    EXPECT_EQ(ours.at("_last_lr").as_sequence().size(), 2U);
  }
}

TEST(ForeignSchedule, KeepsInfinityBeforeTheFirstEvaluation) {
  for (const auto& [name, type] : kTypes) {
    const auto fresh = make(name, type);
    const TorchValue ours = metric_schedule_to_torch(fresh->state(), {1.0, 1.0});
    EXPECT_EQ(ours.at("best").as_double(), std::numeric_limits<double>::infinity());
    const auto restored = make(name, type);
    restored->load_state(state_of(ours));
    EXPECT_EQ(restored->state(), fresh->state()) << name;
  }
}

TEST(ForeignSchedule, HasNoStateWhereTheStepSaysAll) {
  const TorchValue lambda =
      read_torch_file(FileSystem::local(), source_dir() + "/tests/fixtures/tensor/scheduler.pt");
  EXPECT_FALSE(metric_schedule_from_torch(lambda, "x"));
}

TEST(ForeignSchedule, NamesTheFileThatHoldsSomethingElse) {
  TorchDict dict;
  dict.set("num_bad_epochs", "two");
  dict.set("best", 1.0);
  for (const TorchValue& value : {TorchValue(TorchList{}), TorchValue(dict)}) {
    EXPECT_GOLDEN(
        message_of<Error>([&] { (void)metric_schedule_from_torch(value, "a/scheduler.pt"); }));
  }
}

}  // namespace
}  // namespace finetune
