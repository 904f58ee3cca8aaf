// SPDX-License-Identifier: MIT
#include "finetune/config/price_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_helpers.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;

std::optional<Hardware> parsed(const std::string& json) {
  TrainingArgs args;
  args.hardware.text = json;
  return hardware_of(args);
}

std::string problem_of(const std::string& json) {
  try {
    (void)parsed(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "(none)";
}

TEST(PriceList, HasTheReportedFigures) {
  const auto units = [](const std::string& name) {
    return parsed("\"" + name + "\"")->units_per_hour;
  };
  EXPECT_EQ(units("colab_cpu"), 0.08);
  EXPECT_EQ(units("colab_cpu_high_memory"), 0.12);
  EXPECT_EQ(units("colab_t4"), 1.96);
  EXPECT_EQ(units("colab_t4_high_memory"), 2.05);
  EXPECT_EQ(units("colab_v100"), 5.36);
  EXPECT_EQ(units("colab_v100_high_memory"), 5.45);
  EXPECT_EQ(units("colab_a100"), 13.08);
  EXPECT_EQ(units("cloud_tpu_v5e"), 1.2);
  EXPECT_EQ(units("cloud_tpu_v6e"), 2.7);
  for (const PricedMachine& machine : price_list()) {
    const bool is_colab = machine.hardware.name.starts_with("colab_");
    EXPECT_DOUBLE_EQ(500 * machine.hardware.price_per_unit, is_colab ? 5767.0 : 500.0);
    EXPECT_EQ(machine.hardware.currency, is_colab ? "JPY" : "USD");
    EXPECT_GT(machine.tera_flops, 0);
    EXPECT_GE(machine.half_flops, machine.tera_flops);
    EXPECT_GT(machine.memory_gib, 0);
  }
}

TEST(PriceList, NamesTheNearestRow) {
  EXPECT_GOLDEN(problem_of("\"colab_t44\""));
  EXPECT_GOLDEN(problem_of("\"mainframe\""));
}

TEST(PriceList, TakesFiguresOfOnesOwn) {
  const std::optional<Hardware> own =
      parsed(R"({"units_per_hour":1,"price_per_unit":3.9,"currency":"USD"})");
  ASSERT_TRUE(own);
  EXPECT_EQ(own->units_per_hour, 1);
  EXPECT_EQ(own->price_per_unit, 3.9);
  EXPECT_EQ(own->currency, "USD");
  EXPECT_EQ(parsed(R"({"units_per_hour":2})")->price_per_unit, 0);
  EXPECT_FALSE(parsed(""));
}

TEST(PriceList, RefusesFiguresThatAreNone) {
  EXPECT_THAT(problem_of("{}"), HasSubstr("needs units_per_hour"));
  EXPECT_GOLDEN(problem_of(R"({"units_per_hour":0})"));
  EXPECT_GOLDEN(problem_of(R"({"units_per_hour":"many"})"));
  EXPECT_GOLDEN(problem_of(R"({"units_per_hour":1,"price_per_unit":-1})"));
  EXPECT_GOLDEN(problem_of(R"({"units_per_hour":1,"currency":5})"));
  EXPECT_GOLDEN(problem_of(R"({"units_per_hour":1,"currency":""})"));
  EXPECT_GOLDEN(problem_of(R"({"unit_per_hour":1})"));
}

}  // namespace
}  // namespace finetune
