// SPDX-License-Identifier: MIT
#include "finetune/data/question_answering_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const QuestionAnsweringDataset> build(const std::string& content,
                                                      QuestionAnsweringOptions options = {},
                                                      const std::string& name = "a.jsonl") {
  const TemporaryFolder folder;
  options.keep_questions = true;
  return build_question_answering_dataset({folder.write(name, content)}, testing::ByteTokenizer(),
                                          options);
}

std::string row(const std::string& id, const std::string& context, const std::string& answers) {
  return "{\"id\": \"" + id + "\", \"question\": \" q\", \"context\": \"" + context +
         "\", \"answers\": " + answers + "}\n";
}

// <s> q </s></s> context </s>: the context begins at token 4.
TEST(QuestionAnsweringDataset, FindsTheAnswersTokensInTheWindowsThatHoldIt) {
  QuestionAnsweringOptions options;
  options.max_seq_length = 11;  // six tokens of context
  options.doc_stride = 2;
  const auto data =
      build(row("a", "0123456789", R"([{"text": "567", "answer_start": 5}])"), options);
  ASSERT_EQ(data->size(), 2);
  EXPECT_EQ(data->get(0).answer->start, 0);  // tokens 0 to 5 do not contain all of it
  EXPECT_EQ(data->get(1).answer->start, 4 + 1);
  EXPECT_EQ(data->get(1).answer->end, 4 + 3);
  EXPECT_EQ(data->range(1, 3), std::nullopt);
  EXPECT_EQ(data->range(1, 4), (TextRange{.begin = 4, .end = 5}));
  EXPECT_EQ(data->range(1, 10), std::nullopt);
  EXPECT_EQ(data->questions()[0].question, "q");
}

TEST(QuestionAnsweringDataset, CountsAnswerStartInCodePoints) {
  const auto data =
      build(row("a", "灯台\U0001f600x", R"({"text": ["x", "灯"], "answer_start": [3, 0]})"));
  EXPECT_EQ(data->get(0).answer->start, 4 + 10);
  EXPECT_THAT(data->questions()[0].answers, ElementsAre("x", "灯"));
}

TEST(QuestionAnsweringDataset, TakesTheLastTokenWhereTheAnswerBeginsThere) {
  const auto data = build(row("a", "abc", R"([{"text": "c", "answer_start": 2}])"));
  EXPECT_EQ(data->get(0).answer->start, 6);
  EXPECT_EQ(data->get(0).answer->end, 6);
}

TEST(QuestionAnsweringDataset, CutsQuestionsAndWindowsToMaxSamples) {
  QuestionAnsweringOptions options;
  options.max_seq_length = 11;
  options.doc_stride = 2;
  options.max_samples = 3;
  const std::string answers = R"([{"text": "0", "answer_start": 0}])";
  const auto data = build(row("a", "0123456789", answers) + row("b", "0123456789", answers) +
                              row("c", "0", answers) + row("d", "0", answers),
                          options);
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->questions().size(), 3U);
  EXPECT_EQ(data->question_of(2), 1);
}

TEST(QuestionAnsweringDataset, NeedsNoAnswersToPredict) {
  QuestionAnsweringOptions options;
  options.labels_required = false;
  const auto data = build("{\"question\": \"q\", \"context\": \"c\"}\n", options);
  EXPECT_FALSE(data->get(0).answer);
  EXPECT_EQ(data->questions()[0].id, "0");
}

TEST(QuestionAnsweringDataset, NamesPositionIdAndReasonOfWhatCannotBeUsed) {
  struct Case {
    std::string content, reason;
  };
  const std::string good = row("a", "abc", R"([{"text": "b", "answer_start": 1}])");
  for (const Case& c : std::vector<Case>{
           {row("x", "abcd", R"([{"text": "bc", "answer_start": 0}])"),
            "a.jsonl:1 (id 'x'): the answer 'bc' is not at answer_start 0 of the context ('ab' "
            "is); "
            "it is at 1"},
           {row("x", "abcd", R"([{"text": "zz", "answer_start": 9}])"),
            "the answer 'zz' is not at answer_start 9 of the context (the context has ended "
            "there), nor "
            "anywhere else in it"},
           {row("x", "abcd", R"([{"text": "b", "answer_start": 18446744073709551615}])"),
            "'answer_start' holds the number 18446744073709551615"},
           {row("x", "abcd", R"([{"text": "b", "answer_start": -1}])"), "'answer_start' holds"},
           {row("x", "abcd", R"([{"text": "b"}])"), "has no 'answer_start'"},
           {row("x", "abcd", R"([{"text": "", "answer_start": 0}])"), "an answer holds an empty"},
           {row("x", "abcd", "[]"), "has no answer; set version_2_with_negative: true"},
           {row("x", "abcd", R"({"text": ["a"], "answer_start": []})"), "has no 'answer_start'"},
           {row("x", "abcd", R"({"text": ["a"], "answer_start": [0, 1]})"), "of the same length"},
           {row("x", " ", R"([])"), "the context is blank"},
           {good + good, "train_file: the id 'a' is there twice"},
           {"{\"paragraphs\": 3}", "column 'paragraphs' holds the number 3"},
           {"{\"paragraphs\": [{\"context\": \"c\"}]}",
            "a.jsonl:1, paragraph 1: column 'qas' is not there"},
           {"{\"question\": \"q\", \"context\": 3}", "column 'context' holds the number 3"},
       }) {
    EXPECT_THAT(message_of<Error>([&] { static_cast<void>(build(c.content)); }),
                HasSubstr(c.reason))
        << c.content;
  }
  QuestionAnsweringOptions options;
  options.max_seq_length = 11;
  EXPECT_GOLDEN(message_of<Error>([&] {
    static_cast<void>(
        build(row("x", "0123456789", R"([{"text": "0", "answer_start": 0}])"), options));
  }));
}

}  // namespace
}  // namespace finetune
