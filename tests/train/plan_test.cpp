// SPDX-License-Identifier: MIT
#include "finetune/train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMebibyte = int64_t{1} << 20;

nlohmann::ordered_json plan_on(bool is_device) {
  return {{"device", is_device ? "one GPU" : "CPU"},
          {"is_device", is_device},
          {"micro_batch", 16},
          {"accumulation", 4},
          {"tokens_a_row", 128},
          {"checkpointing", "none"},
          {"steps", 100},
          {"parts", {{"weights", 300 * kMebibyte}}},
          {"peak", 900 * kMebibyte},
          {"host", (is_device ? 5000 : 900) * kMebibyte},
          {"available", 1000 * kMebibyte},
          {"host_available", 4000 * kMebibyte},
          {"fits", !is_device},
          {"largest_batch", 0},
          {"largest_batch_for", 1000 * kMebibyte}};
}

TEST(PlanText, NamesTheHostsShareBesideADevice) {
  const std::string text = plan_text(plan_on(true));
  EXPECT_THAT(text, HasSubstr("of the host                 5000 MiB"));
  EXPECT_THAT(text, HasSubstr("does not fit: 1000 MiB are there, 4000 MiB on the host"));
  EXPECT_THAT(plan_text(plan_on(false)), Not(HasSubstr("host")));
}

TEST(PlanText, SaysHowFarOffThePredictionWas) {
  nlohmann::ordered_json plan = plan_on(false);
  plan["measured_peak"] = 1000 * kMebibyte;
  plan["step_seconds"] = 36.0;
  plan["hours"] = 1.0;
  const std::string text = plan_text(plan);
  EXPECT_THAT(text, HasSubstr("16 x 4 samples an update, up to 128 tokens each"));
  EXPECT_THAT(text, HasSubstr("measured peak               1000 MiB"));
  EXPECT_THAT(text, HasSubstr("-10.0 %"));
  EXPECT_THAT(text, HasSubstr("largest per_device_train_batch_size within 1000 MiB: none"));
}

}  // namespace
}  // namespace finetune
