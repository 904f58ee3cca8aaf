// SPDX-License-Identifier: MIT
#include "task/metrics/temperature.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Of scikit-learn and of a search, written by make_temperature_goldens.py.
const Json& goldens() {
  static const Json values = read_json_file(source_dir() + "/tests/task/temperature_goldens.json");
  return values;
}

std::vector<float> one_hot(size_t size, size_t index) {
  std::vector<float> target(size, 0.0F);
  target[index] = 1.0F;
  return target;
}

TEST(TemperatureFit, FindsWhatScikitLearnFinds) {
  for (const Json& one : goldens()["cases"]) {
    TemperatureFit fit;
    for (size_t i = 0; i < one["labels"].size(); ++i) {
      const auto scores = one["logits"][i].get<std::vector<double>>();
      fit.add(scores, one_hot(scores.size(), one["labels"][i]));
    }
    EXPECT_NEAR(fit.fit().temperature, one["temperature"].get<double>(), 1e-6);
    EXPECT_FALSE(fit.fit().is_bound);
  }
}

// The grid of the search is 1e-6 wide at its end.
TEST(TemperatureFit, FindsWhatASearchFindsForProbabilitiesAndListsOfOtherLengths) {
  TemperatureFit fit;
  for (const Json& row : goldens()["soft"]["rows"]) {
    fit.add(row["logits"].get<std::vector<double>>(), row["target"].get<std::vector<float>>());
  }
  EXPECT_NEAR(fit.fit().temperature, goldens()["soft"]["temperature"].get<double>(), 1e-5);
}

TEST(TemperatureFit, DoesNotDependOnAShiftOfTheScores) {
  TemperatureFit plain, shifted;
  for (const Json& row : goldens()["soft"]["rows"]) {
    auto scores = row["logits"].get<std::vector<double>>();
    const auto target = row["target"].get<std::vector<float>>();
    plain.add(scores, target);
    for (double& score : scores) score += 1024.0;
    shifted.add(scores, target);
  }
  EXPECT_NEAR(plain.fit().temperature, shifted.fit().temperature, 1e-9);
}

TEST(TemperatureFit, StopsAtItsBoundsAndNeedsSomeSamples) {
  TemperatureFit right, wrong, few;
  for (int64_t i = 0; i < TemperatureFit::kFewest; ++i) {
    right.add(std::vector<double>{2.0, 0.0}, one_hot(2, 0));
    wrong.add(std::vector<double>{2.0, 0.0}, one_hot(2, 1));
    if (i > 0) few.add(std::vector<double>{2.0, 0.0}, one_hot(2, 1));
  }
  EXPECT_EQ(right.fit().temperature, TemperatureFit::kLeast);
  EXPECT_EQ(wrong.fit().temperature, TemperatureFit::kMost);
  EXPECT_TRUE(right.fit().is_bound && wrong.fit().is_bound);
  EXPECT_EQ(few.fit().temperature, 1.0);
}

}  // namespace
}  // namespace finetune
