// SPDX-License-Identifier: MIT
#include "finetune/report/bucket_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/golden.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST(BucketCost, AddsTheSessionsOfARun) {
  const Json first = bucket_use(Json::object(), {.writes = 1000, .reads = 10, .sent = 5});
  const Json both = bucket_use(first, {.writes = 1000, .reads = 2, .received = 2'000'000'000});
  EXPECT_EQ(both,
            Json({{"writes", 2000}, {"reads", 12}, {"sent", 5}, {"received", 2'000'000'000}}));
  const std::string text = bucket_use_text(both);
  EXPECT_THAT(text, HasSubstr("2000 writing and 12 reading requests"));
  EXPECT_THAT(text, HasSubstr("0.01 USD"));                  // 2,000 x 0.005 / 1,000
  EXPECT_THAT(text, HasSubstr("received: up to 0.18 USD"));  // 2 GB x 0.09
}

TEST(BucketCost, IsNothingForOtherRuns) {
  EXPECT_EQ(bucket_use_text(Json()), "");
  EXPECT_EQ(bucket_use_text("damaged"), "");
  EXPECT_EQ(bucket_use_text({{"writes", "many"}}), "");
  EXPECT_EQ(bucket_use_text(bucket_use("damaged", {})), "");
}

TEST(BucketCost, CountsOneCheckpointMoreThanAreKept) {
  const Json expected = expected_bucket_use(100, 1'000'000'000, 2);
  EXPECT_EQ(expected["stored"], 3'000'000'000);
  EXPECT_NEAR(expected["month_dollars"].get<double>(), 3 * 0.023, 1e-9);
  EXPECT_GOLDEN(expected_bucket_use_text(expected));
  EXPECT_EQ(expected_bucket_use(1, 1000, 5)["stored"], 1000) << "there is only one";
}

}  // namespace
}  // namespace finetune
