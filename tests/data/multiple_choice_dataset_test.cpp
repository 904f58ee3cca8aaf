// SPDX-License-Identifier: MIT
#include "finetune/data/multiple_choice_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/batch.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const SequenceDataset> build(const std::string& name, const std::string& content,
                                             const MultipleChoiceOptions& options = {}) {
  const TemporaryFolder folder;
  return build_multiple_choice_dataset({folder.write(name, content)}, testing::ByteTokenizer(),
                                       options);
}

std::string text_of(const Dataset& data, int64_t index, int64_t choice) {
  return testing::ByteTokenizer().decode(data.get(index, choice).input_ids.to_vector(), true);
}

TEST(MultipleChoiceDataset, PairsTheContextWithEachNumberedChoice) {
  const auto data = build("a.jsonl",
                          "{\"question\": \"q\", \"choice0\": \"a\", \"choice1\": \"b\", "
                          "\"choice2\": \"c\", \"label\": 2}");
  EXPECT_EQ(data->choices(), 3);
  EXPECT_EQ(text_of(*data, 0, 1), "qb");
  EXPECT_EQ(*data->get(0, 0).label, 2);
}

TEST(MultipleChoiceDataset, TakesOtherColumnsWhereTheyAreNamed) {
  MultipleChoiceOptions options;
  options.context_column = "situation";
  options.prefix_column = "start";
  options.choice_columns = {"good", "bad"};
  options.label_column = "right";
  const auto data = build("a.csv", "situation,start,good,bad,right\ns,x,a,b,bad\n", options);
  EXPECT_EQ(text_of(*data, 0, 0), "sx a");
  EXPECT_EQ(*data->get(0).label, 1);
}

TEST(MultipleChoiceDataset, FindsTheChoiceThatALabelMeans) {
  const auto meant = [](const std::string& choices, const std::string& label) {
    return *build("a.jsonl",
                  "{\"question\": \"q\", \"choices\": " + choices + ", \"answer\": " + label + "}")
                ->get(0)
                .label;
  };
  EXPECT_EQ(meant("[\"x\", \"y\"]", "1"), 1);
  EXPECT_EQ(meant("[\"x\", \"y\"]", "\"1\""), 1);
  EXPECT_EQ(meant("[\"x\", \"y\"]", "\"y\""), 1);
  EXPECT_EQ(meant("[\"x\", \"y\"]", "\"B\""), 1);
  EXPECT_EQ(meant("{\"text\": [\"x\", \"y\"], \"label\": [\"1\", \"2\"]}", "\"1\""), 0);
}

TEST(MultipleChoiceDataset, NeedsNoLabelsToPredict) {
  MultipleChoiceOptions options;
  options.labels_required = false;
  EXPECT_EQ(*build("a.jsonl", "{\"question\": \"q\", \"choices\": [\"x\", \"y\"]}", options)
                 ->get(0)
                 .label,
            kIgnoredLabel);
}

TEST(MultipleChoiceDataset, NamesPositionAndReasonOfWhatCannotBeUsed) {
  struct Case {
    std::string content, reason;
  };
  const std::string good = "{\"question\": \"q\", \"choices\": [\"x\", \"y\"], \"label\": 0}\n";
  for (const Case& c : std::vector<Case>{
           {good + "{\"question\": \"q\", \"choices\": [\"x\"], \"label\": 0}",
            "a.jsonl:2: has 1 choices where"},
           {good + "{\"question\": \"q\", \"choices\": [\"x\", null], \"label\": 0}",
            "a.jsonl:2: column 'choices' holds null at place 2"},
           {good + "{\"question\": \"q\", \"choices\": [\"x\", \"y\"], \"label\": 2}",
            "a.jsonl:2: column 'label' holds the number 2, which is no choice; write a number from "
            "0 to 1"},
           {good + "{\"question\": \"q\", \"choices\": [\"x\", \"x\"], \"label\": \"x\"}",
            "which is no choice"},
           {good + "{\"question\": \"q\", \"label\": 2}",
            "a.jsonl:2: column 'choices' is not there"},
           {"{\"question\": \"q\", \"label\": 2}", "no columns look like choices"},
           {"{\"q\": \"q\", \"choices\": [\"x\", \"y\"]}", "no column looks like the context"},
           {"{\"question\": \"q\", \"choices\": [\"x\"], \"label\": 0}", "at least two"},
           {"{\"question\": \"q\", \"choices\": {\"a\": 1}, \"label\": 0}",
            "without a list 'text'"},
       }) {
    EXPECT_THAT(message_of<Error>([&] { static_cast<void>(build("a.jsonl", c.content)); }),
                HasSubstr(c.reason))
        << c.content;
  }
}

}  // namespace
}  // namespace finetune
