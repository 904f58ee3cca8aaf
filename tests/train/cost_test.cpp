// SPDX-License-Identifier: MIT
#include "train/setup/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

const Hardware kT4{.name = "t4", .units_per_hour = 2, .price_per_unit = 10, .currency = "JPY"};
const Hardware kCloud{.name = "cloud", .units_per_hour = 1, .price_per_unit = 4, .currency = "USD"};

TEST(Cost, AddsUnitsAndMoneyOfSessionsOnDifferentMachines) {
  const CostMeter first(kT4, 1000);
  const Cost half_an_hour = first.spent(1000 + 1800);
  EXPECT_DOUBLE_EQ(half_an_hour.units, 1);
  EXPECT_DOUBLE_EQ(half_an_hour.money.at("JPY"), 10);
  const Cost kept = Cost::from_json(half_an_hour.to_json(), "x");
  const CostMeter second(kCloud, 5, kept);
  const Cost both = second.spent(5 + 3600);
  EXPECT_DOUBLE_EQ(both.units, 2);
  EXPECT_DOUBLE_EQ(both.money.at("JPY"), 10);
  EXPECT_DOUBLE_EQ(both.money.at("USD"), 4);
  EXPECT_EQ(both.text(), "2.00 units (10.00 JPY + 4.00 USD)");
}

TEST(Cost, SaysWhatIsSpentAndWhatIsLeft) {
  const CostMeter meter(kT4, 0);
  EXPECT_EQ(meter.text(3600, 36000), "2.00 units (20.00 JPY) spent, 20.00 units (200 JPY) to go");
  EXPECT_EQ(meter.text(3600, std::nullopt), "2.00 units (20.00 JPY) spent");
  const CostMeter without_price({.name = "x", .units_per_hour = 2}, 0);
  EXPECT_EQ(without_price.text(3600, std::nullopt), "2.00 units spent");
}

TEST(Cost, ABudgetIsALimitOfAllSessionsTogether) {
  const CostMeter meter(kT4, 1000, Cost{.units = 3});
  EXPECT_EQ(meter.limit(5).moment, 1000 + 3600);
  EXPECT_EQ(meter.limit(5).seconds, 3600);
  EXPECT_EQ(meter.limit(5).reason, "unit_budget (5 units)");
  EXPECT_LT(meter.limit(2).moment, 1000);  // already spent
}

TEST(Cost, ReadsNothingFromAnEmptyObjectAndRefusesWhatIsNoCost) {
  EXPECT_EQ(Cost::from_json(Json::object(), "x").units, 0);
  for (const char* text : {R"({"units":1})", R"({"units":-1,"money":{}})",
                           R"({"units":"1","money":{}})", R"({"units":1,"money":{"JPY":"x"}})"}) {
    EXPECT_THROW((void)Cost::from_json(Json::parse(text), "x"), Error) << text;
  }
}

}  // namespace
}  // namespace finetune
