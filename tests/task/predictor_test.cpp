// SPDX-License-Identifier: MIT
#include "finetune/task/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/model/model.h"
#include "finetune/task/tasks.h"
#include "finetune/tensor/safetensors.h"
#include "support/golden.h"
#include "support/paths.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

const std::string kModel = source_dir() + "/tests/fixtures/parity/mlm/model";

// A folder with a small random model that has the given head, and its tokenizer.
class ModelFolder {
 public:
  explicit ModelFolder(Head head, std::vector<std::string> labels = {"O", "B-X", "I-X"}) {
    ModelConfig config = read_model_config(kModel);
    config.id2label = std::move(labels);
    config.initializer_range = 0.5;
    const auto model = make_model(head, config, 5, c10::Device(c10::kCPU));
    FileSystem& files = FileSystem::local();
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      folder_.write(name, files.read_all(kModel + "/" + name));
    }
    folder_.write("config.json", model_config_json(model->config(), model->architecture()));
    NamedTensors weights;
    for (const auto& parameter : model->parameters()) {
      weights.push_back({parameter.name, parameter.tensor.detach()});
    }
    const auto file = files.create(folder_ / "model.safetensors");
    write_safetensors(*file, weights);
    file->close();
  }

  [[nodiscard]] const std::string& path() const { return folder_.path(); }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  [[nodiscard]] std::vector<Json> answers(const std::vector<Query>& queries,
                                          PredictOptions options = {}) const {
    options.use_cpu = true;
    return find_predict_task(path()).pipeline.make_predictor(path(), options)->answer(queries);
  }
  [[nodiscard]] std::string refused(const Query& query, const PredictOptions& options = {}) const {
    return message_of<Error>([&] { (void)answers({query}, options); });
  }

 private:
  TemporaryFolder folder_;
};

std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += i == 0 ? "word" : " word";
  return text;
}

void expect_equal_answers(const Json& a, const Json& b) {
  ASSERT_EQ(a.type(), b.type()) << a << b;
  if (a.is_number_float()) {
    EXPECT_NEAR(a.get<double>(), b.get<double>(), 1e-5);
  } else if (a.is_structured()) {
    ASSERT_EQ(a.size(), b.size());
    for (auto left = a.begin(), right = b.begin(); left != a.end(); ++left, ++right) {
      expect_equal_answers(*left, *right);
    }
  } else {
    EXPECT_EQ(a, b);
  }
}

// The answer to a text must not depend on the other texts.
void expect_independent(const ModelFolder& model, const std::vector<Query>& queries) {
  const std::vector<Json> together = model.answers(queries, {.batch_size = 3});
  ASSERT_EQ(together.size(), queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    expect_equal_answers(together[i], model.answers({queries[i]})[0]);
  }
}

TEST(TextClassification, AnswersTextsAloneAsTogether) {
  const ModelFolder model(Head::kSequenceClassification, {"bad", "good"});
  expect_independent(model, {{.where = "text 1", .text = "The light was good."},
                             {.where = "text 2", .text = ""},
                             {.where = "text 3", .text = "one", .pair = "the other one"},
                             {.where = "text 4", .text = "a much longer text about the sea"}});
}

TEST(TextClassification, CutsWhatIsTooLong) {
  const ModelFolder model(Head::kSequenceClassification);
  EXPECT_EQ(model.answers({{.where = "text 1", .text = words(500)}})[0].size(), 1U);
  const auto pair =
      model.answers({{.where = "text 1", .text = words(500), .pair = words(3)}}, {.top_k = 3});
  EXPECT_EQ(pair[0].size(), 3U);
}

TEST(TextClassification, GivesAllLabelsBestFirst) {
  const ModelFolder model(Head::kSequenceClassification, {"a", "b", "c", "d"});
  const Json list = model.answers({{.where = "text 1", .text = "x"}}, {.top_k = 9})[0];
  ASSERT_EQ(list.size(), 4U);
  double sum = 0.0;
  for (size_t i = 0; i < 4; ++i) {
    sum += list[i]["score"].get<double>();
    EXPECT_LE(list[i]["score"], list[i == 0 ? 0 : i - 1]["score"]);
  }
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST(TextClassification, RefusesWhatItDoesNotKnow) {
  const ModelFolder model(Head::kSequenceClassification);
  const Query query = {.where = "in.txt:7", .text = "a\xff"};
  EXPECT_GOLDEN(model.refused(query));
  EXPECT_GOLDEN(model.refused(query, {.function_to_apply = "tanh"}));
}

TEST(TokenClassification, CountsPositionsInCodePoints) {
  const ModelFolder model(Head::kTokenClassification);
  const Json list = model.answers({{.where = "text 1", .text = "é東 x"}}, {.ignore_labels = {}})[0];
  ASSERT_GT(list.size(), 2U);
  EXPECT_EQ(list[0]["start"], 0);
  EXPECT_EQ(list[list.size() - 1]["end"], 4);
  EXPECT_EQ(list[0]["index"], 1);  // after <s>
}

TEST(TokenClassification, AnswersTextsAloneAsTogether) {
  const ModelFolder model(Head::kTokenClassification);
  expect_independent(model, {{.where = "text 1", .text = "The light was good."},
                             {.where = "text 2", .text = ""},
                             {.where = "text 3", .text = "", .parts = {"New", "York"}},
                             {.where = "text 4", .text = words(400)}});
  EXPECT_GOLDEN(model.refused({.where = "text 1", .text = "x"}, {.aggregation_strategy = "some"}));
}

TEST(MultipleChoice, TakesAnyNumberOfChoices) {
  const ModelFolder model(Head::kMultipleChoice);
  const Query two = {.where = "text 1", .text = "the sea", .parts = {"is wet", "burns"}};
  const Query four = {
      .where = "text 2", .text = "who", .pair = "it", .parts = {"a", "b", "c", "d"}};
  expect_independent(model, {two, four, two});
  const auto answers = model.answers({two, four});
  EXPECT_EQ(answers[0]["scores"].size(), 2U);
  EXPECT_EQ(answers[1]["scores"].size(), 4U);
  EXPECT_EQ(answers[1]["choice"], four.parts[answers[1]["label"].get<size_t>()]);
  EXPECT_GOLDEN(model.refused({.where = "in.csv:4", .text = "a", .parts = {"b"}}));
}

TEST(QuestionAnswering, FindsAnswersInEveryWindow) {
  const ModelFolder model(Head::kQuestionAnswering);
  const Query query = {.where = "question 1", .text = words(200), .pair = "where?"};
  const auto list = model.answers({query}, {.top_k = 5, .max_seq_len = 40, .doc_stride = 10})[0];
  ASSERT_EQ(list.size(), 5U);
  for (const Json& answer : list) {
    const auto start = answer["start"].get<size_t>();
    const auto size = answer["end"].get<size_t>() - start;
    EXPECT_EQ(answer["answer"], query.text.substr(start, size));
  }
  expect_independent(model, {query, {.where = "question 2", .text = "a b c", .pair = "who?"}});
}

TEST(QuestionAnswering, RefusesWhatHasNoRoom) {
  const ModelFolder model(Head::kQuestionAnswering);
  EXPECT_GOLDEN(model.refused({.where = "in.jsonl:3", .text = "", .pair = "who?"}));
  EXPECT_GOLDEN(model.refused({.where = "in.jsonl:3", .text = "x", .pair = " "}));
  EXPECT_GOLDEN(model.refused({.where = "in.jsonl:3", .text = "x", .pair = words(90)}));
  EXPECT_THAT(model.refused({.where = "question 1", .text = "x", .pair = "y"}, {.doc_stride = 99}),
              HasSubstr("lower --doc_stride"));
}

TEST(Predictor, RefusesAModelWithoutTheHead) {
  const ModelFolder model(Head::kTokenClassification);
  EXPECT_GOLDEN(message_of<Error>([&] {
    (void)find_task("question_answering")->pipeline.make_predictor(model.path(), {.use_cpu = true});
  }));
}

}  // namespace
}  // namespace finetune
