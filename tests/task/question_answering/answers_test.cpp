// SPDX-License-Identifier: MIT
#include "task/question_answering/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using Ranges = std::vector<std::optional<TextRange>>;

// Results of run_qa's post-processing and of evaluate's metrics, written by make_metric_goldens.py.
const Json& answer_goldens() {
  static const Json values = read_json_file(source_dir() + "/tests/task/metric_goldens.json");
  return values;
}

AnswerOptions options_of(const Json& golden) {
  const Json& options = golden["options"];
  return {.n_best_size = options["n_best_size"],
          .max_answer_length = options["max_answer_length"],
          .version_2_with_negative = options["version_2_with_negative"],
          .null_score_diff_threshold = options["null_score_diff_threshold"]};
}

Answer answer_of(AnswerFinder& finder, const Json& question) {
  for (const Json& window : question["windows"]) {
    Ranges ranges;
    for (const Json& range : window["ranges"]) {
      ranges.push_back(range.is_null() ? std::nullopt
                                       : std::optional(TextRange{range[0], range[1]}));
    }
    finder.add(window["start"].get<std::vector<float>>(), window["end"].get<std::vector<float>>(),
               ranges);
  }
  return finder.finish(question["id"].get<std::string>(), question["context"].get<std::string>());
}

TEST(AnswerFinder, FindsWhatRunQaFinds) {
  for (const Json& golden : answer_goldens()["answers"]) {
    AnswerFinder finder(options_of(golden));
    for (const Json& question : golden["questions"]) {
      const Json& expected = question["expected"];
      const Answer answer = answer_of(finder, question);
      EXPECT_EQ(answer.id, question["id"]);
      EXPECT_EQ(answer.text, expected["text"]) << golden["options"] << question["id"];
      ASSERT_EQ(answer.n_best.size(), expected["n_best"].size());
      for (size_t i = 0; i < answer.n_best.size(); ++i) {
        const Json& candidate = expected["n_best"][i];
        EXPECT_EQ(answer.n_best[i].text, candidate[0]);
        EXPECT_EQ(answer.n_best[i].start_logit, candidate[1].get<float>());
        EXPECT_EQ(answer.n_best[i].end_logit, candidate[2].get<float>());
        EXPECT_NEAR(answer.n_best[i].probability, candidate[3].get<double>(), 1e-6);
      }
      EXPECT_EQ(answer.null_odds.has_value(), !expected["null_odds"].is_null());
      if (answer.null_odds) {
        EXPECT_EQ(*answer.null_odds, expected["null_odds"].get<double>());
      }
    }
  }
}

TEST(AnswerScores, AreThoseOfSquad) {
  for (const Json& golden : answer_goldens()["answers"]) {
    AnswerScores scores(golden["options"]["version_2_with_negative"]);
    for (const Json& question : golden["questions"]) {
      scores.add(question["expected"]["text"].get<std::string>(),
                 question["answers"].get<std::vector<std::string>>());
    }
    const auto computed = scores.compute();
    ASSERT_EQ(computed.size(), golden["scores"].size());
    for (const auto& [name, value] : computed) {
      EXPECT_NEAR(value, golden["scores"][name].get<double>(), 1e-9) << name;
    }
  }
}

TEST(AnswerScores, NormaliseAsSquadDoes) {
  for (const Json& golden : answer_goldens()["normalized"]) {
    EXPECT_EQ(normalize_answer(golden[0].get<std::string>()), golden[1].get<std::string>());
  }
}

TEST(AnswerScores, TextThatIsNotUtf8IsNoReasonToFail) {
  EXPECT_EQ(normalize_answer("The \xFFx"), "\xEF\xBF\xBDx");
}

TEST(AnswerScores, CountBestMatchOfSeveralAnswers) {
  AnswerScores scores(false);
  scores.add("the old tower", std::vector<std::string>{"a tower", "Old Tower.", "bridge"});
  scores.add("tower", std::vector<std::string>{"old tower"});
  scores.add("tower", std::vector<std::string>{});  // right answers are unknown
  EXPECT_THAT(scores.compute(), ::testing::ElementsAre(
                                    ::testing::Pair("exact_match", 50.0),
                                    ::testing::Pair("f1", ::testing::DoubleNear(250.0 / 3, 1e-9))));
}

TEST(AnswerScores, WithoutQuestionsNothingIsDefined) {
  EXPECT_TRUE(std::isnan(AnswerScores(false).compute()[0].second));
  EXPECT_TRUE(std::isnan(AnswerScores(true).compute()[0].second));
}

TEST(AnswerFinder, SaysEmptyWhereNoTokenIsOfTheContext) {
  for (const bool version_2 : {false, true}) {
    AnswerFinder finder({.version_2_with_negative = version_2, .null_score_diff_threshold = 9.0});
    const std::vector<float> logits = {1.0F, 2.0F};
    finder.add(logits, logits, Ranges{std::nullopt, std::nullopt});
    const Answer answer = finder.finish("q", "context");
    EXPECT_EQ(answer.text, "empty");
    EXPECT_EQ(answer.n_best.size(), version_2 ? 2U : 1U);
  }
}

TEST(AnswerFinder, AWindowsWorstCaseDoesNotOutliveItsQuestion) {
  AnswerFinder finder({.n_best_size = 2});
  const std::vector<float> high = {0.0F, 9.0F};
  const std::vector<float> low = {0.0F, 1.0F};
  finder.add(high, high, Ranges{std::nullopt, TextRange{0, 2}});
  EXPECT_EQ(finder.finish("1", "one").text, "on");
  finder.add(low, low, Ranges{std::nullopt, TextRange{0, 3}});
  const Answer answer = finder.finish("2", "two");
  EXPECT_EQ(answer.text, "two");
  EXPECT_EQ(answer.n_best.size(), 1U);
  EXPECT_DOUBLE_EQ(answer.n_best[0].probability, 1.0);
}

TEST(AnswerFinder, StandsADivergedModelAndRangesBeyondTheContext) {
  AnswerFinder finder({.n_best_size = 3, .version_2_with_negative = true});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {nan, 1.0F, nan, std::numeric_limits<float>::infinity(), nan};
  finder.add(logits, logits,
             Ranges{std::nullopt, TextRange{0, 99}, TextRange{7, 3}, TextRange{50, 60}});
  EXPECT_NO_THROW((void)finder.finish("q", "short"));
}

}  // namespace
}  // namespace finetune
