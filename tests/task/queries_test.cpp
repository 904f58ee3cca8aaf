// SPDX-License-Identifier: MIT
#include "finetune/task/queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/task/predictor.h"
#include "finetune/task/tasks.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<Query> queries_of(const char* task, const std::string& name, const std::string& content,
                              const ColumnNames& columns = {}) {
  const TemporaryFolder folder;
  std::vector<Query> queries;
  visit_queries(*find_task(task), folder.write(name, content), {.columns = columns},
                [&](Query query) { queries.push_back(std::move(query)); });
  return queries;
}

std::string refused(const char* task, const std::string& name, const std::string& content,
                    const ColumnNames& columns = {}) {
  return message_of<Error>([&] { (void)queries_of(task, name, content, columns); });
}

TEST(Queries, AreTheLinesOfAText) {
  const auto queries = queries_of("sequence_classification", "in.txt", "one\r\n\n{two}\n");
  ASSERT_EQ(queries.size(), 3U);
  EXPECT_EQ(queries[0].text, "one");
  EXPECT_EQ(queries[1].text, "");
  EXPECT_EQ(queries[2].text, "{two}");
  EXPECT_THAT(queries[2].where, HasSubstr("in.txt:3"));
  EXPECT_FALSE(queries[0].pair);
}

TEST(Queries, TakeAPairAsTrainingDoes) {
  const auto named =
      queries_of("sequence_classification", "in.csv", "idx,sentence2,sentence1,label\n1,b,a,0\n");
  ASSERT_EQ(named.size(), 1U);
  EXPECT_EQ(named[0].text, "a");
  EXPECT_EQ(named[0].pair, "b");
  const auto first_two = queries_of("sequence_classification", "in.jsonl",
                                    "{\"label\": 1, \"text\": \"a\", \"text_pair\": \"b\"}\n");
  EXPECT_EQ(first_two[0].text, "a");
  EXPECT_EQ(first_two[0].pair, "b");
  const auto single = queries_of("sequence_classification", "in.jsonl",
                                 "{\"idx\": 7, \"label\": 1, \"body\": \"a\"}\n");
  EXPECT_EQ(single[0].text, "a");
  EXPECT_FALSE(single[0].pair);
}

TEST(Queries, TakeTheColumnsThatAreNamed) {
  const std::string row = "{\"a\": \"1\", \"b\": \"2\", \"c\": \"3\"}\n";
  const auto one = queries_of("sequence_classification", "in.jsonl", row, {.text_column = "c"});
  EXPECT_EQ(one[0].text, "3");
  EXPECT_FALSE(one[0].pair);
  const auto two = queries_of("sequence_classification", "in.jsonl", row,
                              {.text_column = "c", .text_pair_column = "a"});
  EXPECT_EQ(two[0].pair, "1");
  const std::string message =
      refused("sequence_classification", "in.jsonl", row, {.text_column = "d"});
  EXPECT_GOLDEN(message);
}

TEST(Queries, TakeWordsToTag) {
  const auto queries = queries_of("token_classification", "in.jsonl",
                                  "{\"ner_tags\": [\"O\"], \"tokens\": [\"New\", \"York\"]}\n");
  EXPECT_THAT(queries[0].parts, ElementsAre("New", "York"));
  EXPECT_GOLDEN(refused("token_classification", "in.jsonl", "{\"tokens\": [\"a\", 1]}\n"));
}

TEST(Queries, TakeQuestionsOfRowsAndArticles) {
  const auto rows =
      queries_of("question_answering", "in.jsonl", "{\"question\": \"q\", \"context\": \"c\"}\n");
  EXPECT_EQ(rows[0].text, "c");
  EXPECT_EQ(rows[0].pair, "q");
  const auto articles = queries_of(
      "question_answering", "in.json",
      "{\"data\": [{\"paragraphs\": [{\"context\": \"c\", \"qas\": [{\"question\": \"1\"}, "
      "{\"question\": \"2\"}]}]}]}");
  ASSERT_EQ(articles.size(), 2U);
  EXPECT_EQ(articles[1].text, "c");
  EXPECT_EQ(articles[1].pair, "2");
}

TEST(Queries, FindChoicesInAListOrInColumns) {
  const auto list = queries_of("multiple_choice", "in.jsonl",
                               "{\"question\": \"q\", \"choices\": {\"text\": [\"a\", \"b\"]}}\n");
  EXPECT_EQ(list[0].text, "q");
  EXPECT_THAT(list[0].parts, ElementsAre("a", "b"));
  const auto swag =
      queries_of("multiple_choice", "in.csv",
                 "sent1,sent2,ending0,ending1,ending2\nhe sits,he,falls,\"stands, \",runs\n");
  EXPECT_EQ(swag[0].pair, "he");
  EXPECT_THAT(swag[0].parts, ElementsAre("falls", "stands, ", "runs"));
  const auto named = queries_of("multiple_choice", "in.csv", "x,y,z\n1,2,3\n",
                                {.context_column = "z", .choice_columns = {"y", "x"}});
  EXPECT_THAT(named[0].parts, ElementsAre("2", "1"));
  EXPECT_GOLDEN(refused("multiple_choice", "in.csv", "question,a\n1,2\n"));
}

TEST(Queries, RefuseWhatIsNoText) {
  EXPECT_GOLDEN(
      refused("sequence_classification", "in.jsonl", "{\"text\": \"a\"}\n{\"text\": null}\n"));
  EXPECT_GOLDEN(refused("question_answering", "in.txt", "who?\n"));
  EXPECT_GOLDEN(refused("sequence_classification", "in.jsonl", "{\"a\": 1, \"b\": 2}\n"));
}

TEST(PredictTask, IsFoundInTheModelsConfiguration) {
  const auto task_of = [](const std::string& config) {
    const TemporaryFolder folder;
    folder.write("config.json", config);
    return std::string(find_predict_task(folder.path()).keys.name);
  };
  EXPECT_EQ(task_of("{\"architectures\": [\"BigBirdForTokenClassification\"]}"),
            "token_classification");
  EXPECT_EQ(task_of("{\"architectures\": [\"BertForMaskedLM\"]}"), "mlm");
  for (const char* config : {"{}", "[]", "{\"architectures\": []}", "{\"architectures\": [1]}"}) {
    EXPECT_GOLDEN(message_of<Error>([&] { (void)task_of(config); }));
  }
  EXPECT_EQ(task_of("{\"architectures\": [\"BertModel\"]}"), "embedding");
  EXPECT_EQ(task_of("{\"architectures\": [\"GPT2LMHeadModel\"]}"), "clm");
  EXPECT_GOLDEN(message_of<Error>([&] { (void)task_of("{\"architectures\": [\"BertFoo\"]}"); }));
}

TEST(PredictTask, HasTheNamesOfPipelinesAndOfTheConfiguration) {
  EXPECT_EQ(parse_predict_task("ner").keys.name, "token_classification");
  EXPECT_EQ(parse_predict_task("sequence_classification").keys.name, "sequence_classification");
  EXPECT_EQ(parse_predict_task("mlm").pipeline.name, "fill-mask");
  EXPECT_GOLDEN(message_of<Error>([] { (void)parse_predict_task("fill-masks"); }));
}

}  // namespace
}  // namespace finetune
