// SPDX-License-Identifier: MIT
#include "task/metrics/calibration_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

struct Sample {
  std::string kind;
  std::vector<double> shares;
  size_t wanted = 0;
};

Json kinds_of(const std::vector<Sample>& samples) {
  CalibrationFile file([&](const Batch&, const Outputs&, const CalibrationFile::Take& take) {
    for (const Sample& sample : samples) {
      std::vector<double> logs;
      for (const double share : sample.shares) logs.push_back(std::log(share));
      std::vector<float> target(logs.size(), 0.0F);
      target[sample.wanted] = 1.0F;
      take(sample.kind, logs, target);
    }
  });
  file.add(Batch(), Outputs{.logits = {}, .targets = 1});
  file.add(Batch(), Outputs{.logits = {}, .targets = 0});  // has no targets, so it is not read
  return Json::parse(file.text())["kinds"];
}

TEST(CalibrationFile, HasBinsOfConfidenceWithWhatIsRight) {
  std::vector<Sample> samples;
  for (int i = 0; i < 20; ++i) samples.push_back({"choice", {0.9, 0.06, 0.04}, i < 15 ? 0U : 1U});
  for (int i = 0; i < 4; ++i) samples.push_back({"noul", {0.45, 0.55}, 1});
  const Json kinds = kinds_of(samples);
  ASSERT_EQ(kinds.size(), 2);
  EXPECT_EQ(kinds[0]["name"], "choice");
  ASSERT_EQ(kinds[0]["before"].size(), 1);
  EXPECT_EQ(kinds[0]["before"][0]["samples"], 20);
  EXPECT_NEAR(kinds[0]["before"][0]["confidence"].get<double>(), 0.9, 1e-12);
  EXPECT_NEAR(kinds[0]["before"][0]["accuracy"].get<double>(), 0.75, 1e-12);
  // At the temperature it is as sure as it is right.
  EXPECT_GT(kinds[0]["temperature"].get<double>(), 1.0);
  EXPECT_NEAR(kinds[0]["after"][0]["confidence"].get<double>(), 0.75, 0.03);
  EXPECT_NEAR(kinds[0]["after"][0]["accuracy"].get<double>(), 0.75, 1e-12);
  // Too few for a temperature.
  EXPECT_EQ(kinds[1]["temperature"], 1.0);
  EXPECT_EQ(kinds[1]["after"], kinds[1]["before"]);
}

TEST(CalibrationFile, CoverageBeginsWithTheSurestAnswers) {
  std::vector<Sample> samples;
  for (int i = 0; i < 40; ++i) {
    const double share = 0.55 + 0.01 * i;
    samples.push_back({"", {share, 1.0 - share}, i < 20 ? 1U : 0U});  // the surer half is right
  }
  const Json coverage = kinds_of(samples)[0]["coverage"];
  ASSERT_EQ(coverage.size(), 20);
  EXPECT_EQ(coverage[0], 1.0);
  EXPECT_EQ(coverage[9], 1.0);
  EXPECT_NEAR(coverage[14].get<double>(), 20.0 / 30.0, 1e-12);
  EXPECT_NEAR(coverage[19].get<double>(), 0.5, 1e-12);
}

TEST(CalibrationFile, IsWrittenWithoutSamplesToo) {
  const testing::TemporaryFolder folder;
  const CalibrationFile file(for_each_class_sample);
  file.write(FileSystem::local(), folder / "run");
  const Json json = Json::parse(FileSystem::local().read_all(folder / "run/eval_calibration.json"));
  EXPECT_TRUE(json["kinds"].empty());
}

}  // namespace
}  // namespace finetune
