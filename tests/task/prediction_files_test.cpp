// SPDX-License-Identifier: MIT
#include "finetune/task/prediction_files.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

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

using Json = nlohmann::ordered_json;

Json worst_of(PredictionFiles& files) { return Json::parse(written(files, "worst_samples.json")); }

std::vector<int64_t> samples_of(const Json& worst) {
  std::vector<int64_t> samples;
  for (const Json& one : worst["worst"]) samples.push_back(one["sample"].get<int64_t>());
  return samples;
}

TEST(WorstSamples, OfClassesAreThoseWhoseLabelIsLeastProbable) {
  const auto files = make_classification_files(ProblemType::kSingleLabel, {"no", "yes"});
  Batch batch;
  batch.classes = {0, 1, kIgnoredLabel};
  files->add(batch, logits({2, 0, 3, 0, 9, -9}, {3, 2}));
  batch.classes = {0, 1};
  files->add(batch, logits({NAN, 0, 0, 1}, {2, 2}));
  const Json worst = worst_of(*files);
  EXPECT_EQ(worst["split"], "test");
  EXPECT_EQ(worst["measure"], "probability");
  EXPECT_EQ(worst["samples"], 4);  // of one the label is not known
  EXPECT_EQ(samples_of(worst), (std::vector<int64_t>{3, 1, 4, 0}));
  EXPECT_EQ(worst["worst"][0]["score"], nullptr);  // NaN
  EXPECT_NEAR(worst["worst"][1]["score"].get<double>(), 1 / (1 + std::exp(3)), 1e-6);
  EXPECT_EQ(worst["worst"][1]["label"], "yes");
  EXPECT_EQ(worst["worst"][1]["predicted"], "no");
  EXPECT_NEAR(worst["worst"][1]["predicted_score"].get<double>(), 1 / (1 + std::exp(-3)), 1e-6);
}

TEST(WorstSamples, OfSeveralLabelsAndOfNumbersAreThoseOfTheLargestError) {
  const auto several = make_classification_files(ProblemType::kMultiLabel, {"a", "b"});
  Batch batch;
  batch.values = {1, 0, 1, 1};
  several->add(batch, logits({3, -3, -1, 2}, {2, 2}));
  const Json labels = worst_of(*several);
  EXPECT_EQ(labels["measure"], "loss");
  EXPECT_EQ(samples_of(labels), (std::vector<int64_t>{1, 0}));
  // Binary cross entropy, the mean of both labels.
  const double expected = (std::log1p(std::exp(1)) + std::log1p(std::exp(-2))) / 2;
  EXPECT_NEAR(labels["worst"][0]["score"].get<double>(), expected, 1e-5);
  EXPECT_EQ(labels["worst"][0]["label"], Json({"a", "b"}));
  EXPECT_EQ(labels["worst"][0]["predicted"], Json::array({"b"}));

  const auto numbers = make_classification_files(ProblemType::kRegression, {});
  batch.values = {1.5F, -2};
  numbers->add(batch, logits({1, 3}, {2, 1}));
  const Json errors = worst_of(*numbers);
  EXPECT_EQ(errors["measure"], "error");
  EXPECT_EQ(errors["worst"], Json::parse(R"([
      {"sample": 1, "score": 5.0, "label": -2.0, "predicted": 3.0},
      {"sample": 0, "score": 0.5, "label": 1.5, "predicted": 1.0}])"));
}

TEST(WorstSamples, AreFewHoweverManyThereAre) {
  const auto files = make_classification_files(ProblemType::kRegression, {});
  for (int i = 0; i < 1000; ++i) {
    Batch batch;
    batch.values = {0};
    files->add(batch, logits({static_cast<float>(i * 7919 % 1000)}, {1, 1}));
  }
  const Json worst = worst_of(*files);
  EXPECT_EQ(worst["samples"], 1000);
  ASSERT_EQ(worst["worst"].size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(worst["worst"][i]["score"], 999 - i);
}

TEST(WorstSamples, AreNotWrittenWithoutLabels) {
  const auto files = make_classification_files(ProblemType::kSingleLabel, {"no", "yes"});
  files->add({}, logits({2, 0}, {1, 2}));
  const TemporaryFolder folder;
  files->write(FileSystem::local(), folder.path());
  EXPECT_FALSE(FileSystem::local().exists(folder / "worst_samples.json"));
}

TEST(WorstSamples, OfChoicesAreThoseWhoseRightOneIsLeastProbable) {
  const auto files = make_multiple_choice_files();
  Batch batch;
  batch.classes = {1, 2};
  files->add(batch, logits({1, 2, 0, 4, 1, 3}, {2, 3}));
  const Json worst = worst_of(*files);
  EXPECT_EQ(samples_of(worst), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(worst["worst"][0]["label"], 2);
  EXPECT_EQ(worst["worst"][0]["predicted"], 0);
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

// Whatever the data's own labels are: run_ner leaves words out.
TEST(TokenClassificationFiles, GiveTheLabelOfEachWordsFirstToken) {
  const auto files = make_token_classification_files(two_sentences(), {"O", "B-X"});
  Batch batch = two_rows(false);
  batch.labels[2] = 0;
  batch.labels[6] = 1;
  files->add(batch, classes({0, 1, 0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(written(*files, "predictions.txt"), "B-X O\nB-X\n");
}

TEST(TokenClassificationFiles, GiveWordsWithoutTokensALabelToo) {
  const auto data = std::make_shared<TokenClassificationDataset>(
      TokenContent{.ids = {0, 5, 2}, .offsets = {0, 3}, .words = {-1, 1, -1}, .word_counts = {4}});
  const auto files = make_token_classification_files(data, {"O", "B-X"});
  Batch batch;
  batch.rows = 1;
  batch.length = 3;
  batch.samples = {0};
  batch.labels.assign(3, kIgnoredLabel);
  batch.attention_mask = {1, 1, 1};
  files->add(batch, logits({1, 0, 0, 1, 1, 0}, {1, 3, 2}));
  EXPECT_EQ(written(*files, "predictions.txt"), "O B-X O O\n");
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

TEST(WorstSamples, OfTaggedSentencesNameTheWrongWords) {
  for (const bool pad_left : {false, true}) {
    const auto files = make_token_classification_files(two_sentences(), {"O", "B-X"});
    Batch batch = two_rows(pad_left);
    const size_t second = pad_left ? 8 : 6;  // the token of the second sentence's word
    batch.labels[1] = 1;
    batch.labels[3] = 0;
    batch.labels[second] = 0;
    batch.targets = 3;
    std::vector<float> is_second(10, 0.0F);
    is_second[1] = 1;  // right
    is_second[second] = 3;
    files->add(batch, classes(is_second));
    const Json worst = worst_of(*files);
    EXPECT_EQ(worst["measure"], "loss");
    EXPECT_EQ(samples_of(worst), (std::vector<int64_t>{1, 0}));
    const double share = 1 / (1 + std::exp(2.5));
    EXPECT_NEAR(worst["worst"][0]["score"].get<double>(), -std::log(share), 1e-5);
    const Json& wrong = worst["worst"][0]["wrong"];
    ASSERT_EQ(wrong.size(), 1U);
    EXPECT_EQ(wrong[0]["word"], 0);
    EXPECT_EQ(wrong[0]["label"], "O");
    EXPECT_EQ(wrong[0]["predicted"], "B-X");
    EXPECT_NEAR(wrong[0]["score"].get<double>(), share, 1e-6);
    EXPECT_EQ(worst["worst"][1]["wrong_tokens"], 0);
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
  files.take(an_answer(), {});
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

TEST(WorstSamples, OfAnswersAreThoseOfTheLowestF1AndTheSurestOfThem) {
  AnswerFiles files("eval", false);
  const auto take = [&](const std::string& text, double probability) {
    files.take({.id = text,
                .text = text,
                .n_best = {{.text = text, .probability = probability}},
                .null_odds = {}},
               {.id = text, .question = "Who?", .context = "Anna Hale", .answers = {"Anna Hale"}});
  };
  take("Anna", 0.9);
  take("Jonas", 0.2);
  take("Anna Hale", 0.1);
  take("Thomas", 0.8);
  const Json worst = worst_of(files);
  EXPECT_EQ(worst["split"], "validation");
  EXPECT_EQ(worst["measure"], "f1");
  EXPECT_EQ(samples_of(worst), (std::vector<int64_t>{3, 1, 0, 2}));
  EXPECT_NEAR(worst["worst"][2]["score"].get<double>(), 200.0 / 3, 1e-3);
  EXPECT_EQ(worst["worst"][0]["label"], Json::array({"Anna Hale"}));
  EXPECT_EQ(worst["worst"][0]["predicted"], "Thomas");
  EXPECT_EQ(worst["worst"][0]["text"], "Who?");
}

TEST(AnswerFiles, LeaveOutTheOddsOfSquad1) {
  AnswerFiles files("eval", false);
  files.take({.id = "1",
              .text = "empty",
              .n_best = {{.text = "empty", .probability = 1.0}},
              .null_odds = {}},
             {});
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
