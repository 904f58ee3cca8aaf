// SPDX-License-Identifier: MIT
#include "finetune/data/classification_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/batch.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const SequenceDataset> build(const std::string& path,
                                             const ClassificationOptions& options) {
  return build_classification_dataset({path}, testing::ByteTokenizer(), options);
}

ClassificationOptions with_labels(std::vector<std::string> names) {
  ClassificationOptions options;
  options.labels = LabelMap(std::move(names));
  return options;
}

std::string error_of(const std::string& name, const std::string& content,
                     const ClassificationOptions& options) {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, content);
  return message_of<Error>([&] { static_cast<void>(build(path, options)); });
}

std::vector<int64_t> labels_of(const Dataset& data) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < data.size(); ++i) labels.push_back(*data.get(i).label);
  return labels;
}

std::vector<float> values_of(const Dataset& data, int64_t index) {
  const auto values = data.get(index).values;
  return {values.begin(), values.end()};
}

TEST(ClassificationDataset, GuessesTheOnlyColumnOfText) {
  const TemporaryFolder folder;
  const auto data =
      build(folder.write("a.csv", "id,body,label\n1,ab,no\n2,c,yes\n"), with_labels({"no", "yes"}));
  EXPECT_EQ(testing::ByteTokenizer().decode(data->get(0).input_ids.to_vector(), true), "ab");
  EXPECT_THAT(labels_of(*data), ElementsAre(0, 1));
  EXPECT_TRUE(data->get(0).token_type_ids.empty());
}

TEST(ClassificationDataset, TakesIntegersForNumbersOnlyWhereNoNameIsOne) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": -1}\n");
  EXPECT_THAT(labels_of(*build(path, with_labels({"no", "yes"}))), ElementsAre(1, kIgnoredLabel));
  EXPECT_THAT(labels_of(*build(path, with_labels({"-1", "1"}))), ElementsAre(1, 0));
  EXPECT_GOLDEN(message_of<Error>([&] {
    static_cast<void>(build(path, with_labels({"2", "3"})));
  }));
}

TEST(ClassificationDataset, HasAValueForEachLabelOfSeveral) {
  const TemporaryFolder folder;
  ClassificationOptions options = with_labels({"a", "b", "c"});
  options.problem = ProblemType::kMultiLabel;
  const auto data = build(folder.write("a.jsonl",
                                       "{\"text\": \"x\", \"labels\": [\"c\", \"a\"]}\n"
                                       "{\"text\": \"x\", \"labels\": []}\n"),
                          options);
  EXPECT_THAT(values_of(*data, 0), ElementsAre(1.0F, 0.0F, 1.0F));
  EXPECT_THAT(values_of(*data, 1), ElementsAre(0.0F, 0.0F, 0.0F));
  EXPECT_FALSE(data->get(0).label);
}

TEST(ClassificationDataset, HasTheNumbersOfARegression) {
  const TemporaryFolder folder;
  ClassificationOptions options;
  options.problem = ProblemType::kRegression;
  EXPECT_THAT(values_of(*build(folder.write("a.csv", "text,label\nx,2.5\n"), options), 0),
              ElementsAre(2.5F));
  options.outputs = 2;
  EXPECT_THAT(
      values_of(*build(folder.write("a.jsonl", "{\"text\": \"x\", \"label\": [1, 0.5]}"), options),
                0),
      ElementsAre(1.0F, 0.5F));
}

TEST(ClassificationDataset, NeedsNoLabelsToPredict) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n");
  ClassificationOptions options = with_labels({"a", "b"});
  options.labels_required = false;
  EXPECT_THAT(labels_of(*build(path, options)), ElementsAre(kIgnoredLabel, kIgnoredLabel));
  options.problem = ProblemType::kRegression;
  EXPECT_TRUE(build(path, options)->get(0).values.empty());
  options.label_column = "not there";
  EXPECT_EQ(build(path, options)->size(), 2);
}

TEST(ClassificationDataset, IsTheSameForEveryNumberOfThreads) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 3500; ++i) {
    rows += "{\"text\": \"" + std::string(static_cast<size_t>(i % 40), 'x') +
            "\", \"label\": " + std::to_string(i % 2) + "}\n";
  }
  const std::string path = folder.write("a.jsonl", rows);
  ClassificationOptions options = with_labels({"0", "1"});
  const std::string fingerprint = build(path, options)->fingerprint();
  options.threads = 3;
  EXPECT_EQ(build(path, options)->fingerprint(), fingerprint);
  options.max_samples = 1001;
  EXPECT_EQ(build(path, options)->size(), 1001);
  options.labels = LabelMap({"1", "0"});
  options.max_samples = {};
  EXPECT_NE(build(path, options)->fingerprint(), fingerprint);
}

TEST(ClassificationDataset, NamesPositionAndReasonOfWhatCannotBeUsed) {
  struct Case {
    std::string name, content, reason;
  };
  for (const Case& c : std::vector<Case>{
           {"a.jsonl", "{\"text\": \"x\", \"label\": \"a\"}\n{\"text\": 3, \"label\": \"a\"}",
            "a.jsonl:2: column 'text' holds the number 3 where text is expected"},
           {"b.jsonl", "{\"text\": \"x\", \"label\": \"a\"}\n{\"text\": \"x\", \"label\": \"c\"}",
            "b.jsonl:2: column 'label' holds the text 'c', which is no label; the labels are 'a', "
            "'b'"},
           {"c.jsonl", "{\"text\": \"x\", \"label\": \"a\"}\n{\"texts\": \"x\", \"label\": \"a\"}",
            "c.jsonl:2: column 'text' is not there (did you mean 'texts'?); the row has the "
            "columns "
            "\"texts\", \"label\""},
           {"d.jsonl", "{\"n\": 1, \"label\": \"a\"}", "d.jsonl:1: no column holds text"},
           {"e.jsonl", "{\"n\": 1, \"a\": \"x\", \"b\": \"y\", \"label\": \"a\"}",
            "several columns hold text"},
           {"f.jsonl", "{\"text\": \"x\"}", "there is no column 'label'"},
           {"g.csv", "text,label\n", "holds no rows"},
       }) {
    EXPECT_THAT(error_of(c.name, c.content, with_labels({"a", "b"})), HasSubstr(c.reason))
        << c.name;
  }
  ClassificationOptions options = with_labels({"a", "b"});
  options.vocabulary_limit = 100;
  const std::string row = "{\"text\": \"x\", \"label\": \"a\"}";
  EXPECT_GOLDEN(error_of("a.jsonl", row, options));
  options.max_seq_length = 2;
  EXPECT_GOLDEN(error_of("a.jsonl", row, options));
  options = with_labels({"a", "b"});
  options.rows = {.begin = 5, .end = 9};
  EXPECT_GOLDEN(error_of("a.jsonl", row, options));
}

TEST(ClassificationDataset, GivesWayToAStopThatWasAskedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "text,label\nx,a\n");
  interrupt::request(SIGTERM);
  EXPECT_EQ(message_of<Interrupted>([&] {
              static_cast<void>(build(path, with_labels({"a", "b"})));
            }),
            "reading and tokenising train_file");
  interrupt::reset();
}

}  // namespace
}  // namespace finetune
