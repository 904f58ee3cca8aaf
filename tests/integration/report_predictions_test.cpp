// SPDX-License-Identifier: MIT
// What `finetune report` shows of a run's predictions: confusion matrix, scores of labels, and the
// samples that were predicted worst.
#include <algorithm>
#include <sstream>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Predicts a file with labels.
TinyRun::Keys predicting_keys(const std::string& task, const std::string& name,
                              const std::string& ending = ".jsonl") {
  return {{"task", task},
          {"train_file", kTasks + name + "-train" + ending},
          {"validation_file", kTasks + name + "-valid" + ending},
          {"test_file", kTasks + name + "-valid" + ending},
          {"do_predict", "true"},
          {"max_steps", "6"},
          {"eval_strategy", "\"no\""},
          {"save_strategy", "\"no\""}};
}

Json report_of(const TinyRun& run) {
  const ProcessResult result = finetune({"report", run.out(), "--format", "json"});
  EXPECT_EQ(result.code, 0) << result.err;
  return Json::parse(result.out)["runs"][0];
}

Json report_after_training(const TinyRun& run) {
  const ProcessResult trained = run.train();
  EXPECT_EQ(trained.code, 0) << trained.err;
  return report_of(run);
}

std::vector<Json> rows_of_file(const std::string& path) {
  std::vector<Json> rows;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) rows.push_back(Json::parse(line));
  return rows;
}

// With the probabilities that `predict` gives the same rows.
TEST(WorstPredictions, OfAClassifierAreThoseWhoseTrueLabelIsLeastProbable) {
  const TinyRun run(predicting_keys("sequence_classification", "weather"));
  const Json report = report_after_training(run);
  const std::string file = kTasks + "weather-valid.jsonl";
  const std::vector<Json> rows = rows_of_file(file);
  const ProcessResult said = finetune({"predict", run.out(), "--input", file, "--use_cpu",
                                       "--probabilities", "all", "--text_column", "text"});
  ASSERT_EQ(said.code, 0) << said.err;
  std::istringstream lines(said.out);
  std::vector<std::pair<double, size_t>> expected;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line;
    std::getline(lines, line);
    for (const Json& one : Json::parse(line)) {
      if (one["label"] == rows[row]["label"]) {
        expected.emplace_back(one["score"].get<double>(), row);
      }
    }
  }
  ASSERT_EQ(expected.size(), rows.size());
  std::ranges::sort(expected);
  const Json& worst = report["worst"]["worst"];
  EXPECT_EQ(report["worst"]["measure"], "probability");
  EXPECT_EQ(report["worst"]["samples"], rows.size());
  ASSERT_EQ(worst.size(), std::min<size_t>(20, rows.size()));
  for (size_t i = 0; i < worst.size(); ++i) {
    EXPECT_NEAR(worst[i]["score"].get<double>(), expected[i].first, 1e-5);
    const Json& row = rows[worst[i]["sample"].get<size_t>()];
    EXPECT_EQ(worst[i]["text"], row["text"]);
    EXPECT_EQ(worst[i]["label"], row["label"]);
  }
  EXPECT_EQ(report["confusion"]["labels"].size(), report["label_names"].size());
  EXPECT_FALSE(report["confusion"].contains("worst"));
  const std::string text = finetune({"report", run.out(), "--format", "md"}).out;
  EXPECT_THAT(text, HasSubstr("### Worst predictions: lowest probability of the right label\n"));
  EXPECT_THAT(text, HasSubstr("| row | probability | text | true | predicted |"));
}

TEST(WorstPredictions, FollowTheTask) {
  const TinyRun numbers(predicting_keys("sequence_classification", "likeness"));
  const Json number = report_after_training(numbers);
  EXPECT_EQ(number["worst"]["measure"], "error");
  const Json& worst = number["worst"]["worst"][0];
  EXPECT_NEAR(worst["score"].get<double>(),
              std::abs(std::stod(worst["label"].get<std::string>()) -
                       std::stod(worst["predicted"].get<std::string>())),
              2e-3);
  EXPECT_FALSE(number.contains("confusion"));                      // numbers are no classes
  EXPECT_THAT(worst["text"].get<std::string>(), HasSubstr("\n"));  // both sentences

  const TinyRun topics(predicting_keys("sequence_classification", "topics"));
  const Json several = report_after_training(topics);
  EXPECT_EQ(several["worst"]["measure"], "loss");
  EXPECT_FALSE(several.contains("confusion"));
  const Json scores = several["class_scores"]["scores"];
  ASSERT_EQ(scores.size(), several["label_names"].size());
  int64_t labelled = 0;
  for (const Json& row : rows_of_file(kTasks + "topics-valid.jsonl")) {
    labelled +=
        static_cast<int64_t>(row.contains("labels") ? row["labels"].size() : row["label"].size());
  }
  int64_t counted = 0;
  for (const Json& label : scores) counted += label["samples"].get<int64_t>();
  EXPECT_EQ(counted, labelled);

  const TinyRun choices(predicting_keys("multiple_choice", "choices"));
  const Json choice = report_after_training(choices)["worst"]["worst"][0];
  EXPECT_THAT(choice["label"].get<std::string>(), ContainsRegex("^[0-3]: the "));
  EXPECT_THAT(choice["predicted"].get<std::string>(),
              ContainsRegex("^[0-3]: the .* \\(0\\.[0-9]+\\)$"));
  EXPECT_THAT(choice["text"].get<std::string>(), HasSubstr("?"));

  const TinyRun names(predicting_keys("token_classification", "names"));
  const Json tags = report_after_training(names)["worst"];
  EXPECT_EQ(tags["measure"], "loss");
  EXPECT_THAT(tags["worst"][0]["predicted"].get<std::string>(),
              ContainsRegex("^[^ ]+: [^ ]+ instead of [^ ]+ \\("));
}

TEST(WorstPredictions, OfAnswersHaveTheLowestF1) {
  TinyRun::Keys keys = predicting_keys("question_answering", "cargo", ".json");
  keys["doc_stride"] = "8";
  keys["max_seq_length"] = "64";
  keys["config_overrides"] =
      "{num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 32, intermediate_size: 64, "
      "max_position_embeddings: 66, type_vocab_size: 1}";
  const TinyRun run(keys);
  const Json worst = report_after_training(run)["worst"];
  EXPECT_EQ(worst["measure"], "f1");
  const Json predicted = Json::parse(read_file(run.out("predict_predictions.json")));
  const Json stored = Json::parse(read_file(run.out("worst_samples.json")));
  EXPECT_EQ(stored["samples"], predicted.size());
  double before = -1;
  for (const Json& one : stored["worst"]) {
    EXPECT_EQ(one["predicted"], predicted[one["id"].get<std::string>()]);
    EXPECT_GE(one["score"].get<double>(), before);
    before = one["score"].get<double>();
  }
}

TEST(WorstPredictions, OfAFileWithoutLabelsAreNone) {
  TinyRun::Keys keys = predicting_keys("sequence_classification", "weather");
  const TemporaryFolder folder;
  std::string rows;
  for (Json row : rows_of_file(kTasks + "weather-test.jsonl")) {
    row.erase("label");
    rows += row.dump() + "\n";
  }
  keys["test_file"] = folder.write("test.jsonl", rows);
  const TinyRun run(keys);
  const Json report = report_after_training(run);
  EXPECT_FALSE(report.contains("worst"));
  EXPECT_FALSE(report.contains("confusion"));
}

// Texts of the data are text wherever they are shown.
TEST(WorstPredictions, PutNoDataIntoMarkup) {
  TinyRun::Keys keys = predicting_keys("sequence_classification", "weather");
  const TemporaryFolder folder;
  const Json label = rows_of_file(kTasks + "weather-valid.jsonl")[0]["label"];
  const std::string evil = "</script><img src=x onerror=alert(1)>|`a`\u0001";
  keys["test_file"] =
      folder.write("test.jsonl", Json({{"text", evil}, {"label", label}}).dump() + "\n");
  const TinyRun run(keys);
  const Json report = report_after_training(run);
  EXPECT_EQ(report["worst"]["worst"][0]["text"],
            "</script><img src=x onerror=alert(1)>|`a`\\u0001");
  const std::string page_file = folder / "page.html";
  ASSERT_EQ(finetune({"report", run.out(), "-o", page_file}).code, 0);
  EXPECT_THAT(read_file(page_file), Not(HasSubstr("<img")));
  const std::string text = finetune({"report", run.out(), "--format", "md"}).out;
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  EXPECT_THAT(text, HasSubstr("&lt;img src=x onerror=alert(1)>\\|"));
}

TEST(WorstPredictions, AreShownWithoutTextsWhereTheFileChangedOrIsGone) {
  TinyRun::Keys keys = predicting_keys("sequence_classification", "weather");
  const TemporaryFolder folder;
  const std::string test = folder.write("test.jsonl", read_file(kTasks + "weather-valid.jsonl"));
  keys["test_file"] = test;
  const TinyRun run(keys);
  const std::string known = report_after_training(run)["worst"]["worst"][0]["text"];
  EXPECT_FALSE(known.empty());
  // The labels of other rows.
  std::vector<Json> rows = rows_of_file(test);
  std::string changed;
  for (Json& row : rows) {
    row["label"] = "another";
    changed += row.dump() + "\n";
  }
  write_file(test, changed);
  const auto expect_without_text = [&](const std::string& why) {
    const Json worst = report_of(run)["worst"];
    EXPECT_EQ(worst["worst"][0]["text"], "");
    EXPECT_THAT(worst["source"].get<std::string>(), HasSubstr(why));
  };
  expect_without_text("without texts: the rows of test.jsonl have changed since");
  std::filesystem::remove(test);
  expect_without_text("test.jsonl");
  // Half of the file, other types: no worst samples, no failure.
  const std::string stored = read_file(run.out("worst_samples.json"));
  for (const std::string& text :
       {stored.substr(0, stored.size() / 2), std::string("[1]"),
        std::string(R"({"worst": [{"sample": "a"}, 7, {"sample": -1, "wrong": [3]}]})"),
        std::string(R"({"worst": {"sample": 1}})")}) {
    write_file(run.out("worst_samples.json"), text);
    EXPECT_EQ(finetune({"report", run.out(), "--format", "md"}).code, 0) << text;
    EXPECT_EQ(finetune({"report", run.out(), "-o", folder / "page.html"}).code, 0) << text;
  }
}

}  // namespace
}  // namespace finetune::testing
