// SPDX-License-Identifier: MIT
#include "finetune/task/metrics.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "support/paths.h"
#include "task/question_answering/question_answering.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

const Json& question_goldens() {
  static const Json values =
      read_json_file(source_dir() + "/tests/task/metric_goldens.json")["answers"];
  return values;
}

std::vector<Json> windows_of(const Json& golden) {
  std::vector<Json> windows;
  for (const Json& question : golden["questions"]) {
    windows.insert(windows.end(), question["windows"].begin(), question["windows"].end());
  }
  return windows;
}

std::shared_ptr<const QuestionAnsweringDataset> dataset_of(const Json& golden) {
  QuestionAnsweringDataset::Content content;
  for (const Json& question : golden["questions"]) {
    for (const Json& window : question["windows"]) {
      QuestionAnsweringDataset::Window cut;
      cut.question = static_cast<int64_t>(content.questions.size());
      cut.first_context = static_cast<int64_t>(content.ranges.size());
      for (const Json& range : window["ranges"]) {
        if (range.is_null() && cut.tokens == 0) ++cut.first_token;
        if (range.is_null()) continue;
        content.ranges.push_back({range[0], range[1]});
        ++cut.tokens;
      }
      content.windows.push_back(cut);
      content.tokens.ids.resize(content.tokens.ids.size() + window["ranges"].size());
      content.tokens.offsets.push_back(static_cast<int64_t>(content.tokens.ids.size()));
      content.tokens.answers.emplace_back();
    }
    content.questions.push_back({question["id"], "", question["context"], question["answers"]});
  }
  return std::make_shared<QuestionAnsweringDataset>(std::move(content));
}

// Adds windows [first, last) as one batch; `left` more positions are padding on the left, and
// shorter rows end with low logits.
void add_windows(Metrics& metrics, const std::vector<Json>& windows, size_t first, size_t last,
                 size_t left = 0) {
  Batch batch;
  batch.rows = static_cast<int64_t>(last - first);
  for (size_t i = first; i < last; ++i) {
    batch.samples.push_back(static_cast<int64_t>(i));
    batch.length = std::max(batch.length, static_cast<int64_t>(left + windows[i]["start"].size()));
  }
  Tensor logits = at::full({batch.rows, batch.length, 2}, -100.0);
  for (size_t i = first; i < last; ++i) {
    for (size_t t = 0; t < windows[i]["start"].size(); ++t) {
      const Tensor position =
          logits[static_cast<int64_t>(i - first)][static_cast<int64_t>(left + t)];
      position[0] = windows[i]["start"][t].get<double>();
      position[1] = windows[i]["end"][t].get<double>();
    }
  }
  for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
    batch.attention_mask.push_back(i % batch.length < static_cast<int64_t>(left) ? 0 : 1);
  }
  metrics.add(batch, {.logits = logits, .loss = 0.0, .targets = 0});
}

AnswerOptions metric_options(const Json& golden) {
  const Json& options = golden["options"];
  return {.n_best_size = options["n_best_size"],
          .max_answer_length = options["max_answer_length"],
          .version_2_with_negative = options["version_2_with_negative"],
          .null_score_diff_threshold = options["null_score_diff_threshold"]};
}

TEST(QuestionAnsweringMetrics, AreThoseOfRunQaHoweverWindowsAreBatched) {
  for (const Json& golden : question_goldens()) {
    const std::vector<Json> windows = windows_of(golden);
    for (const size_t batch_size : {size_t{1}, size_t{3}, windows.size()}) {
      std::vector<std::string> found;
      const auto metrics =
          make_question_answering_metrics(dataset_of(golden), metric_options(golden),
                                          [&](const Answer& answer, const Question& question) {
                                            EXPECT_EQ(answer.id, question.id);
                                            found.push_back(answer.id + ": " + answer.text);
                                          });
      for (size_t first = 0; first < windows.size(); first += batch_size) {
        add_windows(*metrics, windows, first, std::min(first + batch_size, windows.size()));
      }
      std::vector<std::string> expected;
      for (const Json& question : golden["questions"]) {
        expected.push_back(question["id"].get<std::string>() + ": " +
                           question["expected"]["text"].get<std::string>());
      }
      EXPECT_EQ(found, expected);
      for (const auto& [name, value] : metrics->compute()) {
        EXPECT_NEAR(value, golden["scores"][name].get<double>(), 1e-9) << name;
      }
    }
  }
}

TEST(QuestionAnsweringMetrics, PaddingInFrontChangesNothing) {
  const Json& golden = question_goldens()[2];
  const std::vector<Json> windows = windows_of(golden);
  const auto metrics = make_question_answering_metrics(dataset_of(golden), metric_options(golden));
  for (size_t i = 0; i < windows.size(); ++i) add_windows(*metrics, windows, i, i + 1, 1 + i % 3);
  for (const auto& [name, value] : metrics->compute()) {
    EXPECT_NEAR(value, golden["scores"][name].get<double>(), 1e-9) << name;
  }
}

TEST(QuestionAnsweringMetrics, AnAnswerIsThereWithItsLastWindow) {
  const Json& golden = question_goldens()[0];
  const std::vector<Json> windows = windows_of(golden);
  int64_t found = 0;
  const auto metrics = make_question_answering_metrics(
      dataset_of(golden), metric_options(golden), [&](const Answer&, const Question&) { ++found; });
  const size_t first_question = golden["questions"][0]["windows"].size();
  ASSERT_GT(first_question, 1U);
  add_windows(*metrics, windows, 0, first_question - 1);
  EXPECT_EQ(found, 0);
  add_windows(*metrics, windows, first_question - 1, first_question);
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace finetune
