// SPDX-License-Identifier: MIT
#include "finetune/task/metrics.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "support/paths.h"
#include "task/loss/words_task.h"
#include "task/masked_lm/masked_lm.h"
#include "task/metrics/class_metrics.h"
#include "task/multiple_choice/multiple_choice.h"
#include "task/sequence_classification/sequence_classification.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Metrics of scikit-learn, SciPy and seqeval, written by make_metric_goldens.py.
const Json& goldens() {
  static const Json values = read_json_file(source_dir() + "/tests/task/metric_goldens.json");
  return values;
}

std::vector<std::string> names_of(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics.compute()) names.push_back(name);
  return names;
}

double value_of(const Metrics& metrics, const std::string& name) {
  for (const auto& [found, value] : metrics.compute()) {
    if (found == name) return value;
  }
  throw std::logic_error("no metric " + name);
}

void expect_equal(double value, const Json& expected, const std::string& what) {
  if (expected.is_null()) {
    EXPECT_TRUE(std::isnan(value)) << what;
  } else {
    EXPECT_NEAR(value, expected.get<double>(), 1e-9) << what;
  }
}

Tensor matrix(const Json& rows) {
  std::vector<float> values;
  for (const Json& row : rows) {
    if (row.is_array()) {
      for (const Json& value : row) values.push_back(value.get<float>());
    } else {
      values.push_back(row.get<float>());
    }
  }
  return at::tensor(values).view({static_cast<int64_t>(rows.size()), -1});
}

// Returns samples [first, last) of a golden as a batch, and the model's outputs for it.
std::pair<Batch, Outputs> samples(const Json& golden, size_t first, size_t last) {
  Batch batch;
  batch.rows = static_cast<int64_t>(last - first);
  Json logits = Json::array();
  for (size_t i = first; i < last; ++i) {
    logits.push_back(golden["logits"][i]);
    if (golden.contains("classes")) batch.classes.push_back(golden["classes"][i]);
    if (!golden.contains("values")) continue;
    const Json& values = golden["values"][i];
    for (const Json& value : values.is_array() ? values : Json::array({values})) {
      batch.values.push_back(value.get<float>());
    }
  }
  return {batch, {.logits = matrix(logits), .loss = 1.0, .targets = batch.rows}};
}

void add_in_two_batches(Metrics& metrics, const Json& golden) {
  const size_t size = golden["logits"].size();
  for (const auto& [first, last] : {std::pair{size_t{0}, size / 2}, {size / 2, size}}) {
    if (first == last) continue;
    const auto [batch, outputs] = samples(golden, first, last);
    metrics.add(batch, outputs);
  }
}

void check(ProblemType problem, const Json& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    for (const auto& [name, expected] : cases[i]["expected"].items()) {
      const auto metrics = make_sequence_classification_metrics(problem, {name});
      add_in_two_batches(*metrics, cases[i]);
      EXPECT_EQ(names_of(*metrics), std::vector<std::string>{name});
      expect_equal(value_of(*metrics, name), expected, name + " of case " + std::to_string(i));
    }
  }
}

TEST(SequenceClassificationMetrics, ClassesScoreAsInScikitLearn) {
  check(ProblemType::kSingleLabel, goldens()["classes"]);
}

TEST(SequenceClassificationMetrics, SeveralLabelsScoreAsInScikitLearn) {
  check(ProblemType::kMultiLabel, goldens()["labels"]);
}

TEST(SequenceClassificationMetrics, NumbersScoreAsInScikitLearnAndSciPy) {
  check(ProblemType::kRegression, goldens()["numbers"]);
}

TEST(SequenceClassificationMetrics, DefaultsAndTasksOfGlueAreSets) {
  using Names = std::vector<std::string>;
  const auto names = [](ProblemType problem, const std::string& name) {
    const std::vector<std::string> list = name.empty() ? Names{} : Names{name};
    return names_of(*make_sequence_classification_metrics(problem, list));
  };
  EXPECT_EQ(names(ProblemType::kSingleLabel, ""),
            (Names{"accuracy", "f1", "matthews_correlation"}));
  EXPECT_EQ(names(ProblemType::kSingleLabel, "mrpc"), (Names{"accuracy", "f1", "combined_score"}));
  EXPECT_EQ(names(ProblemType::kSingleLabel, "cola"), Names{"matthews_correlation"});
  EXPECT_EQ(names(ProblemType::kMultiLabel, ""), (Names{"f1", "accuracy"}));
  EXPECT_EQ(names(ProblemType::kRegression, ""),
            (Names{"mse", "pearson", "spearmanr", "combined_score"}));
  EXPECT_EQ(names(ProblemType::kRegression, "stsb"),
            (Names{"pearson", "spearmanr", "combined_score"}));
}

TEST(SequenceClassificationMetrics, CombinesAccuracyAndF1AsRunGlueDoes) {
  const auto metrics = make_sequence_classification_metrics(ProblemType::kSingleLabel, {"mrpc"});
  add_in_two_batches(*metrics, goldens()["classes"][0]);
  EXPECT_DOUBLE_EQ(value_of(*metrics, "combined_score"),
                   (value_of(*metrics, "accuracy") + value_of(*metrics, "f1")) / 2);
}

TEST(SequenceClassificationMetrics, ANameOfAnotherProblemIsRefused) {
  EXPECT_THAT(
      [] { (void)make_sequence_classification_metrics(ProblemType::kRegression, {"pearsonr"}); },
      ::testing::ThrowsMessage<Error>(
          ::testing::AllOf(::testing::HasSubstr("metric_name: 'pearsonr'"),
                           ::testing::HasSubstr("did you mean 'pearson'"))));
  EXPECT_THROW((void)make_sequence_classification_metrics(ProblemType::kMultiLabel, {"mse"}),
               Error);
}

TEST(SequenceClassificationMetrics, AListReportsEachMetricOnce) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(*make_sequence_classification_metrics(ProblemType::kSingleLabel,
                                                           {"roc_auc", "mrpc", "f1"})),
            (Names{"roc_auc", "accuracy", "f1", "combined_score"}));
  EXPECT_THROW(
      (void)make_sequence_classification_metrics(ProblemType::kRegression, {"mse", "roc_auc"}),
      Error);
}

// Goldens: make_roc_auc_goldens.py.
TEST(SequenceClassificationMetrics, RocAucIsScikitLearns) {
  const Json values = read_json_file(source_dir() + "/tests/task/roc_auc_goldens.json");
  for (const auto& [kind, problem] : {std::pair{"classes", ProblemType::kSingleLabel},
                                      std::pair{"labels", ProblemType::kMultiLabel}}) {
    ASSERT_FALSE(values[kind].empty());
    for (const Json& golden : values[kind]) {
      const auto metrics = make_sequence_classification_metrics(problem, {"roc_auc"});
      add_in_two_batches(*metrics, golden);
      EXPECT_NEAR(value_of(*metrics, "roc_auc"), golden["expected"].get<double>(), 1e-12) << kind;
    }
  }
}

TEST(SequenceClassificationMetrics, RocAucIsNanWhereAClassIsMissing) {
  const auto metrics = make_sequence_classification_metrics(ProblemType::kSingleLabel, {"roc_auc"});
  EXPECT_TRUE(std::isnan(value_of(*metrics, "roc_auc")));
  Batch batch;
  batch.rows = 2;
  batch.classes = {1, 1};
  metrics->add(batch, {.logits = at::zeros({2, 2}), .loss = 1.0, .targets = 2});
  EXPECT_TRUE(std::isnan(value_of(*metrics, "roc_auc")));
}

TEST(SequenceClassificationMetrics, SamplesWithoutALabelDoNotCount) {
  const auto metrics = make_sequence_classification_metrics(ProblemType::kSingleLabel, {});
  EXPECT_TRUE(std::isnan(value_of(*metrics, "accuracy")));
  EXPECT_TRUE(std::isnan(value_of(*metrics, "f1")));
  Batch batch;
  batch.rows = 3;
  batch.classes = {1, kIgnoredLabel, 0};
  metrics->add(batch, {.logits = at::tensor({0., 1., 0., 1., 0., 1.}).view({3, 2}), .targets = 2});
  EXPECT_DOUBLE_EQ(value_of(*metrics, "accuracy"), 0.5);
  batch.classes.clear();
  metrics->add(batch, {.logits = at::zeros({3, 2})});
  EXPECT_DOUBLE_EQ(value_of(*metrics, "accuracy"), 0.5);
}

TEST(SequenceClassificationMetrics, SeveralNumbersHaveAnErrorAndNoCorrelation) {
  const auto metrics = make_sequence_classification_metrics(ProblemType::kRegression, {});
  Batch batch;
  batch.rows = 2;
  batch.values = {1, 2, 3, 4};
  metrics->add(batch, {.logits = at::tensor({1., 0., 3., 4.}).view({2, 2}), .targets = 4});
  EXPECT_EQ(names_of(*metrics), std::vector<std::string>{"mse"});
  EXPECT_DOUBLE_EQ(value_of(*metrics, "mse"), 1.0);
}

TEST(SequenceClassificationMetrics, ADivergedModelHasNoCorrelation) {
  const auto metrics = make_sequence_classification_metrics(ProblemType::kRegression, {});
  Batch batch;
  batch.rows = 3;
  batch.values = {1, 2, 3};
  metrics->add(batch, {.logits = at::tensor({1., std::nan(""), 2.}).view({3, 1}), .targets = 3});
  for (const auto& [name, value] : metrics->compute()) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(MultipleChoiceMetrics, OfEqualChoicesTheFirstCounts) {
  const auto metrics = make_multiple_choice_metrics();
  Batch batch;
  batch.rows = 6;
  batch.choices = 3;
  batch.classes = {0, 2};
  metrics->add(batch, {.logits = at::tensor({2., 2., 1., 0., 5., 5.}).view({2, 3}), .targets = 2});
  EXPECT_EQ(names_of(*metrics), std::vector<std::string>{"accuracy"});
  EXPECT_DOUBLE_EQ(value_of(*metrics, "accuracy"), 0.5);
}

// Rows of a golden, one batch each, with unlabelled tokens before, between and after the labelled
// ones.
std::unique_ptr<Metrics> entity_metrics(const Json& golden, bool by_entity) {
  const auto names = golden["names"].get<std::vector<std::string>>();
  auto metrics = make_token_classification_metrics(names, by_entity);
  const auto number = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  for (size_t row = 0; row < golden["there"].size(); ++row) {
    Batch batch;
    batch.labels = {kIgnoredLabel};
    std::vector<int64_t> predicted = {0};
    for (size_t i = 0; i < golden["there"][row].size(); ++i) {
      batch.labels.push_back(number(golden["there"][row][i]));
      predicted.push_back(number(golden["predicted"][row][i]));
      if (i % 3 != 1) continue;
      batch.labels.push_back(kIgnoredLabel);
      predicted.push_back(static_cast<int64_t>(names.size()) - 1);
    }
    batch.labels.push_back(kIgnoredLabel);
    predicted.push_back(1 % static_cast<int64_t>(names.size()));
    batch.rows = 1;
    batch.length = static_cast<int64_t>(predicted.size());
    Tensor logits = at::zeros({1, batch.length, static_cast<int64_t>(names.size())});
    for (int64_t i = 0; i < batch.length; ++i) {
      logits[0][i][predicted[static_cast<size_t>(i)]] = 1.0;
    }
    metrics->add(batch, {.logits = logits, .loss = 1.0, .targets = 1});
  }
  return metrics;
}

TEST(TokenClassificationMetrics, EntitiesScoreAsInSeqeval) {
  for (size_t i = 0; i < goldens()["entities"].size(); ++i) {
    const Json& golden = goldens()["entities"][i];
    const auto metrics = entity_metrics(golden, true);
    std::vector<std::string> expected;
    for (const auto& [name, value] : golden["expected"].items()) {
      expected.push_back(name);
      expect_equal(value_of(*metrics, name), value, name + " of case " + std::to_string(i));
    }
    EXPECT_EQ(names_of(*metrics), expected) << i;
  }
}

TEST(TokenClassificationMetrics, ReportsTheWholeByDefault) {
  const Json& golden = goldens()["entities"][0];
  const auto metrics = entity_metrics(golden, false);
  EXPECT_EQ(names_of(*metrics),
            (std::vector<std::string>{"precision", "recall", "f1", "accuracy"}));
  expect_equal(value_of(*metrics, "f1"), golden["expected"]["overall_f1"], "f1");
  expect_equal(value_of(*metrics, "accuracy"), golden["expected"]["overall_accuracy"], "accuracy");
}

TEST(TokenClassificationMetrics, WithoutLabelsNothingIsDefined) {
  const auto metrics = make_token_classification_metrics({"O", "B-A"}, false);
  Batch batch;
  batch.rows = 1;
  batch.length = 2;
  metrics->add(batch, {.logits = at::zeros({1, 2, 2})});
  for (const auto& [name, value] : metrics->compute()) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST(MetricNames, HoldEveryMetricOfATask) {
  for (const ProblemType problem :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression}) {
    for (const std::string& name : names_of(*make_sequence_classification_metrics(problem, {}))) {
      EXPECT_THAT(task_keys("sequence_classification").metric_names, ::testing::Contains(name));
    }
  }
  EXPECT_THAT(task_keys("token_classification").metric_names,
              ::testing::IsSupersetOf(names_of(*make_token_classification_metrics({"O"}, false))));
  EXPECT_THAT(task_keys("token_classification").metric_names,
              ::testing::IsSupersetOf(names_of(*make_token_classification_metrics({"O"}, true))));
  EXPECT_THAT(task_keys("multiple_choice").metric_names,
              ::testing::ElementsAreArray(names_of(*make_multiple_choice_metrics())));
  EXPECT_THAT(task_keys("mlm").metric_names,
              ::testing::ElementsAreArray(names_of(*make_masked_lm_metrics())));
  for (const Json& golden : goldens()["answers"]) {
    for (const auto& [name, value] : golden["scores"].items()) {
      EXPECT_THAT(task_keys("question_answering").metric_names, ::testing::Contains(name));
    }
  }
}

}  // namespace
}  // namespace finetune
