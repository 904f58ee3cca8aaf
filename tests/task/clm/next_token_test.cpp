// SPDX-License-Identifier: MIT
#include "task/generate/next_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace finetune {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;

int32_t choose(const GenerationConfig& config, std::vector<float> scores,
               const std::vector<int32_t>& text = {}, double uniform = 0.0) {
  return NextToken(config).choose(scores, text, uniform);
}

// Returns the fraction of each token among the choices of 1000 evenly spaced random numbers.
std::map<int32_t, double> shares(const GenerationConfig& config, const std::vector<float>& scores) {
  std::map<int32_t, double> found;
  for (int i = 0; i < 1000; ++i) found[choose(config, scores, {}, (i + 0.5) / 1000)] += 1e-3;
  return found;
}

TEST(NextToken, IsTheFirstOfTheMostProbable) {
  EXPECT_EQ(choose({}, {0.5F, 2.0F, 2.0F, -1.0F}), 1);
}

TEST(NextToken, IsLessProbableWhereTheTextHasItAlready) {
  const GenerationConfig config{.repetition_penalty = 2.0};
  EXPECT_EQ(choose(config, {3.0F, 2.0F}, {0, 0, 0}), 1);  // 1.5 < 2
  EXPECT_EQ(choose(config, {-1.0F, -1.5F}, {0}), 1);      // -2 < -1.5
  // applied once, however often the token occurs
  EXPECT_EQ(choose(config, {5.0F, 2.0F}, {0, 0, 0}), 0);
}

TEST(NextToken, IsDrawnByTheSoftmaxOfTheScores) {
  const GenerationConfig config{.do_sample = true};
  const auto found = shares(config, {std::log(1.0F), std::log(3.0F), std::log(6.0F)});
  EXPECT_NEAR(found.at(0), 0.1, 2e-3);
  EXPECT_NEAR(found.at(1), 0.3, 2e-3);
  EXPECT_NEAR(found.at(2), 0.6, 2e-3);
}

TEST(NextToken, IsDrawnSharperAtALowTemperature) {
  const GenerationConfig config{.do_sample = true, .temperature = 0.5};
  const auto found = shares(config, {std::log(1.0F), std::log(3.0F)});
  EXPECT_NEAR(found.at(0), 0.1, 2e-3);  // 1 : 9
}

TEST(NextToken, IsAmongTheTopK) {
  const GenerationConfig config{.do_sample = true, .top_k = 2};
  const auto found = shares(config, {std::log(6.0F), std::log(1.0F), std::log(3.0F)});
  EXPECT_THAT(found, Not(Contains(Key(1))));
  EXPECT_NEAR(found.at(2), 1.0 / 3.0, 2e-3);
}

TEST(NextToken, IsAmongTheFewestThatHoldTopP) {
  const std::vector<float> scores = {std::log(6.0F), std::log(1.0F), std::log(3.0F)};
  const auto one = shares({.do_sample = true, .top_p = 0.5}, scores);
  EXPECT_EQ(one.size(), 1U);
  const auto two = shares({.do_sample = true, .top_p = 0.7}, scores);
  EXPECT_THAT(two, Not(Contains(Key(1))));
  EXPECT_NEAR(two.at(2), 1.0 / 3.0, 2e-3);
}

}  // namespace
}  // namespace finetune
