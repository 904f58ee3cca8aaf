// SPDX-License-Identifier: MIT
#include "train/setup/plan_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/train/plan.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

Json plan_on(const std::string& device) {
  return {
      {"device", device}, {"is_device", device != "CPU"}, {"flops", 1e15},
      {"steps", 1000},    {"peak", int64_t{2} << 30},     {"peak_elsewhere", int64_t{14} << 30}};
}

TrainingArgs args_with(const std::string& hardware) {
  TrainingArgs args;
  args.hardware.text = hardware;
  return args;
}

Json row_of(const Json& plan, const std::string& name) {
  for (const Json& row : plan["costs"]["rows"]) {
    if (row["name"] == name) return row;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(FlopsOfUpdate, CountsProductsOfEncoderAndHead) {
  MemoryWorkload workload;
  workload.length = 128;
  workload.predicted_share = 0.0;
  workload.effective_batch = 2;
  workload.model.hidden_size = 64;
  workload.model.intermediate_size = 256;
  workload.model.num_hidden_layers = 3;
  const double layer = 4.0 * 64 * 64 + 2.0 * 64 * 256 + 2.0 * 64 * 128;
  EXPECT_DOUBLE_EQ(flops_of_update(workload, {}), 6.0 * 256 * 3 * layer);
  EXPECT_DOUBLE_EQ(flops_of_update(workload, {.checkpointing = {.enabled = true}}),
                   8.0 * 256 * 3 * layer);
}

TEST(Costs, AreEstimatedFromPeakFiguresWhereNothingIsMeasured) {
  Json plan = plan_on("CPU");
  add_costs(args_with("\"colab_cpu\""), plan);
  const Json& rows = plan["costs"]["rows"];
  ASSERT_EQ(rows.size(), 9U);
  for (const Json& row : rows) EXPECT_EQ(row["basis"], "estimated from peak figures");
  const double t4 = row_of(plan, "colab_t4")["hours"].get<double>();
  EXPECT_NEAR(t4, 1e18 / (0.35 * 8.1e12) / 3600, 1e-6 * t4);
  EXPECT_DOUBLE_EQ(row_of(plan, "colab_t4")["units"].get<double>(), 1.96 * t4);
  EXPECT_DOUBLE_EQ(row_of(plan, "colab_t4")["money"].get<double>(), 1.96 * t4 * 5767 / 500);
}

TEST(Costs, RanksWhatFitsByCostAndTheRestBehind) {
  Json plan = plan_on("CPU");
  plan["peak_elsewhere"] = int64_t{20} << 30;  // more than a T4 or a V100 has
  add_costs(args_with(""), plan);
  std::vector<bool> fits;
  for (const Json& row : plan["costs"]["rows"]) fits.push_back(row["fits"].get<bool>());
  EXPECT_THAT(fits,
              ::testing::ElementsAre(true, true, true, true, false, false, false, false, false));
  const Json& rows = plan["costs"]["rows"];
  EXPECT_LE(rows[0]["units"].get<double>(), rows[1]["units"].get<double>());
  EXPECT_LE(rows[1]["units"].get<double>(), rows[2]["units"].get<double>());
  EXPECT_EQ(rows[3]["name"], "cloud_tpu_v6e") << "dollars behind yen";
}

TEST(Costs, TakeTheMeasuredHoursForTheRowThatIsThisMachine) {
  Json plan = plan_on("Tesla T4 (cuda:0 of 1, 14.7 GiB)");
  plan["hours"] = 3.0;
  add_costs(args_with("\"colab_t4_high_memory\""), plan);
  EXPECT_EQ(row_of(plan, "colab_t4_high_memory")["hours"], 3.0);
  EXPECT_EQ(row_of(plan, "colab_t4_high_memory")["basis"], "measured here");
  EXPECT_EQ(row_of(plan, "colab_a100")["basis"], "scaled by peak figures");
  EXPECT_DOUBLE_EQ(row_of(plan, "colab_a100")["hours"].get<double>(), 3.0 * 8.1 / 19.5);
}

TEST(Costs, DoNotTakeThisProcessorForTheDeviceThatIsNamed) {
  Json plan = plan_on("CPU");
  plan["hours"] = 3.0;
  add_costs(args_with("\"colab_t4\""), plan);
  EXPECT_EQ(row_of(plan, "colab_t4")["basis"], "estimated from peak figures");
}

TEST(Costs, AreExactForAMachineWhoseFiguresAreGiven) {
  Json plan = plan_on("CPU");
  plan["hours"] = 3.0;
  add_costs(args_with(R"({"units_per_hour":2,"price_per_unit":0.5,"currency":"EUR"})"), plan);
  EXPECT_EQ(plan["costs"]["given"]["units"], 6.0);
  EXPECT_EQ(plan["costs"]["given"]["money"], 3.0);
  EXPECT_GOLDEN(costs_text(plan));
}

TEST(Costs, AreOneLineWhereNoHardwareIsGiven) {
  Json plan = plan_on("CPU");
  EXPECT_EQ(costs_text(plan), "");
  add_costs(args_with(""), plan);
  EXPECT_GOLDEN(costs_text(plan));
  EXPECT_THAT(costs_text(plan), Not(HasSubstr("colab_v100")));
  add_costs(args_with("\"colab_v100\""), plan);
  EXPECT_THAT(costs_text(plan), HasSubstr("colab_v100"));
  EXPECT_GOLDEN(costs_text(plan));
}

}  // namespace
}  // namespace finetune
