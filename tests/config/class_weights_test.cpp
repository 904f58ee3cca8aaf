// SPDX-License-Identifier: MIT
#include "finetune/config/class_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/config/dump.h"
#include "finetune/config/load.h"
#include "finetune/config/validate.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using ::testing::Pair;

LoadedConfig load(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return load_config_text(yaml, "run.yaml", overrides);
}

ClassWeightChoice weights(const std::string& yaml, const std::vector<std::string>& more = {}) {
  return class_weights_of(load(yaml, more).args);
}

TEST(ClassWeights, AreAWordAListOrAMapping) {
  EXPECT_TRUE(weights("").empty());
  EXPECT_TRUE(weights("class_weights: none\n").empty());
  EXPECT_TRUE(weights("class_weights: balanced\n").balanced);
  EXPECT_THAT(weights("class_weights: [1, 2.5]\n").in_order, ElementsAre(1, 2.5));
  EXPECT_THAT(weights("class_weights: {neg: 1, 3: 0.5}\n").by_label,
              ElementsAre(Pair("neg", 1), Pair("3", 0.5)));
  EXPECT_THAT(weights("", {"--class_weights", "[1, 2]"}).in_order, ElementsAre(1, 2));
  EXPECT_THAT(weights("", {"--class_weights", "neg=1,pos=3"}).by_label,
              ElementsAre(Pair("neg", 1), Pair("pos", 3)));
  EXPECT_TRUE(weights("", {"--class_weights=balanced"}).balanced);
  EXPECT_THAT(weights("", {"--class_weights", "{neg: 1, pos: 3}"}).by_label,
              ElementsAre(Pair("neg", 1), Pair("pos", 3)));
}

TEST(ClassWeights, ThatMakeNoSenseAreRefusedWhereTheyWereSet) {
  const auto refused = [](const std::string& value) {
    const LoadedConfig config = load(
        "task: sequence_classification\ntrain_file: a.csv\nmodel_name_or_path: m\n"
        "class_weights: " +
        value + "\n");
    return message_of<Error>([&] { validate(config, Purpose::kTrain); });
  };
  EXPECT_GOLDEN(refused("equal"));
  EXPECT_GOLDEN(refused("[1, 0]"));
  EXPECT_GOLDEN(refused("{a: heavy}"));
  EXPECT_GOLDEN(refused("[]"));
}

TEST(ClassWeights, BelongToTasksWithClasses) {
  const LoadedConfig config =
      load("task: mlm\ntrain_file: a.txt\nmodel_name_or_path: m\nclass_weights: balanced\n");
  EXPECT_GOLDEN(message_of<Error>([&] { validate(config, Purpose::kTrain); }));
}

TEST(Delimiter, IsOneCharacterOrItsName) {
  EXPECT_EQ(load("delimiter: tab\n").args.delimiter, "\t");
  EXPECT_EQ(load("delimiter: \"\\t\"\n").args.delimiter, "\t");
  EXPECT_EQ(load("delimiter: ';'\n").args.delimiter, ";");
  EXPECT_EQ(load("", {"--delimiter", "semicolon"}).args.delimiter, ";");
  const LoadedConfig config = load("train_file: a.csv\nmodel_name_or_path: m\ndelimiter: ', '\n");
  EXPECT_GOLDEN(message_of<Error>([&] { validate(config, Purpose::kTrain); }));
}

// Checkpoints of earlier versions stored one name or null, which mean a list of one or none.
TEST(MetricName, OfAnEarlierVersionIsTheSame) {
  const auto changes = [](const nlohmann::ordered_json& before, const std::string& yaml) {
    nlohmann::ordered_json old_args = to_json(load("").args);
    old_args["metric_name"] = before;
    return changed_keys(old_args, to_json(load(yaml).args)).size();
  };
  EXPECT_EQ(changes(nullptr, ""), 0U);
  EXPECT_EQ(changes("f1", "metric_name: f1\n"), 0U);
  EXPECT_EQ(changes("f1", "metric_name: [f1]\n"), 0U);
  EXPECT_EQ(changes("f1", "metric_name: [f1, roc_auc]\n"), 1U);
}

}  // namespace
}  // namespace finetune
