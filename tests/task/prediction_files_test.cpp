// SPDX-License-Identifier: MIT
#include "finetune/task/prediction_files.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "finetune/data/token_classification_dataset.h"
#include "task/multiple_choice/multiple_choice.h"
#include "task/question_answering/answer_files.h"
#include "task/sequence_classification/sequence_classification.h"
#include "task/token_classification/token_classification.h"

namespace finetune {
namespace {

using testing::TemporaryFolder;

Outputs logits(const std::vector<float>& values, std::vector<int64_t> shape) {
  return {.logits = at::tensor(values).view(shape)};
}

// Returns what `files` writes under that name after one batch.
std::string written(PredictionFiles& files, const std::string& name) {
  const TemporaryFolder folder;
  files.write(FileSystem::local(), folder / "out");
  return FileSystem::local().read_all(folder / "out/" + name);
}

TEST(ClassificationFiles, NumberTheSamplesOfAllBatches) {
  const auto files = make_classification_files(ProblemType::kSingleLabel, {"no", "yes", "so so"});
  files->add({}, logits({1, 2, 0, 3, 0, 3}, {2, 3}));
  files->add({}, logits({0, 0, 5}, {1, 3}));
  EXPECT_EQ(written(*files, "predict_results.txt"), "index\tprediction\n0\tyes\n1\tno\n2\tso so\n");
}

TEST(ClassificationFiles, ListSeveralLabelsAsPythonDoes) {
  const auto files =
      make_classification_files(ProblemType::kMultiLabel, {"a", "it's", "both ' and \"\\"});
  files->add({}, logits({0.1F, -1, -1, 1, 1, 1, 0, 0, 0}, {3, 3}));
  EXPECT_EQ(written(*files, "predict_results.txt"),
            "index\tprediction\n0\t['a']\n1\t['a', \"it's\", 'both \\' and \"\\\\']\n2\t[]\n");
}

TEST(ClassificationFiles, RoundNumbersToThreeDecimals) {
  const auto one = make_classification_files(ProblemType::kRegression, {});
  one->add({}, logits({2.71828F, -0.0004F, NAN}, {3, 1}));
  EXPECT_EQ(written(*one, "predict_results.txt"),
            "index\tprediction\n0\t2.718\n1\t-0.000\n2\tnan\n");
  const auto two = make_classification_files(ProblemType::kRegression, {});
  two->add({}, logits({1, 2.5F}, {1, 2}));
  EXPECT_EQ(written(*two, "predict_results.txt"), "index\tprediction\n0\t[1.000, 2.500]\n");
}

TEST(MultipleChoiceFiles, GiveTheNumberOfTheBestChoice) {
  const auto files = make_multiple_choice_files();
  files->add({}, logits({1, 2, 0, 4, 1, 3}, {2, 3}));
  EXPECT_EQ(written(*files, "predict_results.txt"), "index\tprediction\n0\t1\n1\t0\n");
}

// Two rows of the words (0, 1) and (0): a special token, tokens of words, a special token.
std::shared_ptr<const TokenClassificationDataset> two_sentences() {
  return std::make_shared<TokenClassificationDataset>(
      TokenContent{.ids = {0, 5, 6, 7, 2, 0, 5, 2},
                   .offsets = {0, 5, 8},
                   .words = {-1, 0, 0, 1, -1, -1, 0, -1},
                   .word_counts = {2, 1}});
}

// Classes of the tokens: B A B A A, then A A A and padding, or with that padding on the left.
Batch two_rows(bool pad_left) {
  Batch batch;
  batch.rows = 2;
  batch.length = 5;
  batch.samples = {0, 1};
  batch.labels.assign(10, kIgnoredLabel);
  batch.attention_mask = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
  if (pad_left) batch.attention_mask = {1, 1, 1, 1, 1, 0, 0, 1, 1, 1};
  return batch;
}

Outputs classes(const std::vector<float>& is_second) {
  std::vector<float> values;
  for (const float yes : is_second) values.insert(values.end(), {0.5F, yes});
  return logits(values, {2, static_cast<int64_t>(is_second.size()) / 2, 2});
}

TEST(TokenClassificationFiles, GiveTheLabelsOfTokensThatHaveOne) {
  const auto files = make_token_classification_files(two_sentences(), {"O", "B-X"});
  Batch batch = two_rows(false);
  batch.labels[2] = 0;
  batch.labels[3] = 1;
  batch.labels[6] = 1;
  files->add(batch, classes({0, 0, 1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(written(*files, "predictions.txt"), "B-X O\nB-X\n");
}

TEST(TokenClassificationFiles, GiveALabelForEachWordWhereNoneIsKnown) {
  for (const bool pad_left : {false, true}) {
    const auto files = make_token_classification_files(two_sentences(), {"O", "B-X"});
    const std::vector<float> right = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0};
    const std::vector<float> left = {0, 1, 0, 0, 0, 0, 0, 0, 1, 0};
    files->add(two_rows(pad_left), classes(pad_left ? left : right));
    EXPECT_EQ(written(*files, "predictions.txt"), "B-X O\nB-X\n") << pad_left;
  }
}

Answer an_answer() {
  return {.id = "q\"1",
          .text = "東京",
          .n_best = {{.text = "東京",
                      .range = {.begin = 3, .end = 9},
                      .start_logit = 1.5F,
                      .end_logit = 0.1F,
                      .probability = 0.75},
                     {.text = "", .start_logit = 0.0F, .end_logit = 2e-5F, .probability = 0.25}},
          .null_odds = -1.5};
}

TEST(AnswerFiles, AreThoseOfPythonsJson) {
  AnswerFiles files("predict", true);
  files.take(an_answer());
  EXPECT_EQ(written(files, "predict_predictions.json"),
            "{\n    \"q\\\"1\": \"\\u6771\\u4eac\"\n}\n");
  EXPECT_EQ(written(files, "predict_nbest_predictions.json"),
            "{\n    \"q\\\"1\": [\n"
            "        {\n"
            "            \"start_logit\": 1.5,\n"
            "            \"end_logit\": 0.10000000149011612,\n"
            "            \"text\": \"\\u6771\\u4eac\",\n"
            "            \"probability\": 0.75\n"
            "        },\n"
            "        {\n"
            "            \"start_logit\": 0.0,\n"
            "            \"end_logit\": 1.9999999494757503e-05,\n"
            "            \"text\": \"\",\n"
            "            \"probability\": 0.25\n"
            "        }\n"
            "    ]\n}\n");
  EXPECT_EQ(written(files, "predict_null_odds.json"), "{\n    \"q\\\"1\": -1.5\n}\n");
}

TEST(AnswerFiles, LeaveOutTheOddsOfSquad1) {
  AnswerFiles files("eval", false);
  files.take({.id = "1",
              .text = "empty",
              .n_best = {{.text = "empty", .probability = 1.0}},
              .null_odds = {}});
  const TemporaryFolder folder;
  files.write(FileSystem::local(), folder.path());
  EXPECT_EQ(FileSystem::local().list(folder.path()),
            (std::vector<std::string>{"eval_nbest_predictions.json", "eval_predictions.json"}));
  EXPECT_EQ(FileSystem::local().read_all(folder / "eval_nbest_predictions.json"),
            "{\n    \"1\": [\n        {\n            \"text\": \"empty\",\n"
            "            \"start_logit\": 0.0,\n            \"end_logit\": 0.0,\n"
            "            \"probability\": 1.0\n        }\n    ]\n}\n");
}

}  // namespace
}  // namespace finetune
