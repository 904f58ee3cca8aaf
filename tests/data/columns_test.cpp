// SPDX-License-Identifier: MIT
#include "finetune/data/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/data/data_record.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Not;
using testing::TemporaryFolder;

// Finds the columns of a JSON row.
FoundColumns find(const std::string& row, const ColumnSearch& search) {
  const nlohmann::ordered_json columns = parse_json(row, "row");
  const std::string position = "f:2";
  return find_columns(DataRow{.columns = columns, .position = position, .typed = true}, search);
}

ColumnNames classified(const std::string& row, const ColumnNames& named = {},
                       const ColumnNames& trained = {}) {
  return find(row, {.task = RowTask::kSequenceClassification, .named = named, .trained = trained})
      .names;
}

TEST(Columns, MatchWithoutCaseAndSurroundingSpaces) {
  const ColumnNames guess = classified(R"({" Sentence1 ": "a", "SENTENCE2": "b", " Label": "x"})");
  EXPECT_EQ(guess.text_column, " Sentence1 ");
  EXPECT_EQ(guess.text_pair_column, "SENTENCE2");
  EXPECT_EQ(guess.label_column, " Label");
  EXPECT_EQ(classified(R"({"Text": "a", "Stars": 1})", {.text_column = "text "}).text_column,
            "Text");
  // Exact matches take precedence; a name that matches several columns only without case matches
  // none.
  EXPECT_EQ(
      classified(R"({"TEXT": "a", "text": "b", "label": 1})", {.text_column = "text"}).text_column,
      "text");
  EXPECT_GOLDEN(message_of<Error>([] {
    (void)classified(R"({"TEXT": "a", "text": "b", "label": 1})", {.text_column = "Text"});
  }));
}

std::string refused_of_text(const std::string& row, const ColumnSearch& search) {
  const nlohmann::ordered_json columns = parse_json(row, "row");
  const std::string position = "f.csv:2";
  return message_of<Error>([&] {
    (void)find_columns(DataRow{.columns = columns, .position = position, .typed = false}, search);
  });
}

TEST(Columns, AdviseHeaderFalseOnlyWhereAHeaderWasRead) {
  const ColumnSearch search{.task = RowTask::kSequenceClassification};
  EXPECT_GOLDEN(refused_of_text(R"({"good": "a", "1": "b"})", search));
  EXPECT_THAT(refused_of_text(R"({"column_1": "a", "column_2": "b"})", search),
              AllOf(HasSubstr("set label_column"), Not(HasSubstr("header"))));
  const ColumnSearch trained{.task = RowTask::kSequenceClassification,
                             .trained = {.text_column = "column_1"},
                             .labels = LabelUse::kUnused,
                             .key_prefix = "--"};
  EXPECT_GOLDEN(refused_of_text(R"({"good": "a", "fine": "b"})", trained));
}

TEST(Columns, AreGuessedByUsualNames) {
  for (const std::string label :
       {"label", "labels", "label_ids", "target", "class", "category", "stars"}) {
    const ColumnNames guess = classified(R"({"review": "good", ")" + label + R"(": "x"})");
    EXPECT_EQ(guess.label_column, label);
    EXPECT_EQ(guess.text_column, "review");
    EXPECT_FALSE(guess.text_pair_column);
  }
  const ColumnNames nli =
      classified(R"({"genre": "g", "premise": "a", "hypothesis": "b", "label": 0})");
  EXPECT_EQ(nli.text_column, "premise");
  EXPECT_EQ(nli.text_pair_column, "hypothesis");
  // The order of columns does not determine the text.
  EXPECT_EQ(classified(R"({"stars": 3, "n": 1, "text": "a", "title": "b"})").text_column, "text");
}

TEST(Columns, OfTheFirstTwoTextsAreAPairAndRowNumbersNone) {
  const ColumnNames guess =
      classified(R"({"ID": "a1", "title": "a", "text": "b", "doc_id": "c", "label": 0})");
  EXPECT_EQ(guess.text_column, "title");
  EXPECT_EQ(guess.text_pair_column, "text");
}

TEST(Columns, ThatAreNamedGoBeforeTrainedOnesAndTheseBeforeAGuess) {
  const std::string row = R"({"a": "1", "b": "2", "c": "3", "label": 0})";
  EXPECT_EQ(classified(row).text_column, "a");
  EXPECT_EQ(classified(row, {}, {.text_column = "b"}).text_column, "b");
  EXPECT_FALSE(classified(row, {}, {.text_column = "b"}).text_pair_column);
  EXPECT_EQ(classified(row, {.text_column = "c"}, {.text_column = "b"}).text_column, "c");
  const ColumnNames pair =
      classified(row, {.text_column = "c"}, {.text_column = "a", .text_pair_column = "b"});
  EXPECT_EQ(pair.text_column, "c");
  EXPECT_EQ(pair.text_pair_column, "b");
}

TEST(Columns, SayWhereEachComesFrom) {
  const FoundColumns found =
      find(R"({"a": "1", "b": "2", "label": 0})", {.task = RowTask::kSequenceClassification,
                                                   .named = {.text_pair_column = "b"},
                                                   .trained = {.text_column = "a"}});
  EXPECT_EQ(found.report,
            "text_pair_column: 'b' (set); text_column: 'a' (as the model was trained); "
            "label_column: 'label' (guessed from f:2)");
  EXPECT_EQ(found.warning, "");
}

TEST(Columns, OfATrainingThatAreMissingAreReplacedByTheOnlyTextOrRefused) {
  const FoundColumns found =
      find(R"({"id": 7, "body": "a", "label": 0})",
           {.task = RowTask::kSequenceClassification, .trained = {.text_column = "text"}});
  EXPECT_EQ(found.names.text_column, "body");
  EXPECT_GOLDEN(found.warning);
  EXPECT_GOLDEN(message_of<Error>([] {
    (void)classified(R"({"x": "a", "y": "b", "label": 0})", {}, {.text_column = "text"});
  }));
  EXPECT_GOLDEN(message_of<Error>([] {
    (void)classified(R"({"text": "a", "label": 0})", {},
                     {.text_column = "text", .text_pair_column = "second"});
  }));
}

TEST(Columns, OfWordsQuestionsAndChoices) {
  const ColumnNames words = find(R"({"id": 1, "Tokens": ["a"], "ner_tags": ["O"]})",
                                 {.task = RowTask::kTokenClassification})
                                .names;
  EXPECT_EQ(words.text_column, "Tokens");
  EXPECT_EQ(words.label_column, "ner_tags");
  const ColumnNames raw = find(R"({"n": 1, "text": "a b"})", {.task = RowTask::kTokenClassification,
                                                              .trained = {.text_column = "tokens"},
                                                              .labels = LabelUse::kUnused})
                              .names;
  EXPECT_EQ(raw.text_column, "text");
  const ColumnNames choice =
      find(R"({"sent1": "a", "sent2": "b", "ending0": "c", "ending1": "d", "label": 1})",
           {.task = RowTask::kMultipleChoice})
          .names;
  EXPECT_EQ(choice.context_column, "sent1");
  EXPECT_EQ(choice.text_column, "sent2");
  EXPECT_THAT(choice.choice_columns, ElementsAre("ending0", "ending1"));
  const ColumnNames asked = find(R"({"Question": "a", "Context": "b"})",
                                 {.task = RowTask::kQuestionAnswering, .labels = LabelUse::kUnused})
                                .names;
  EXPECT_EQ(asked.text_column, "Question");
  EXPECT_EQ(asked.context_column, "Context");
}

TEST(DataRecord, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_data_record(folder.path()));
  const DataRecord record{
      .task = "multiple_choice",
      .columns = {.text_column = "a \"b\"",
                  .context_column = "c",
                  .choice_columns = {"d", "e"},
                  .label_column = "f"},
      .class_weights = {0.1, 3},
      .reading = {.delimiter = ';', .quoting = Quoting::kNone, .header = false}};
  folder.write(kDataRecordFile, record.to_text());
  const auto read = read_data_record(folder.path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->task, record.task);
  EXPECT_EQ(read->columns, record.columns);
  EXPECT_EQ(read->class_weights, record.class_weights);
  EXPECT_EQ(read->reading, record.reading);
}

TEST(DataRecord, HoldsNoReadingThatIsTheDefault) {
  const DataRecord record{.task = "mlm", .columns = {.text_column = "a"}};
  EXPECT_EQ(record.to_text().find("reading"), std::string::npos) << record.to_text();
}

TEST(DataRecord, RefusesAReadingThatIsNone) {
  for (const char* reading : {R"({"delimiter": "ab"})", R"({"delimiter": ""})",
                              R"({"quoting": "some"})", R"({"header": "no"})", R"([])"}) {
    const TemporaryFolder folder;
    folder.write(kDataRecordFile,
                 R"({"task": "mlm", "columns": {}, "reading": )" + std::string(reading) + "}");
    EXPECT_THAT(message_of<Error>([&] { (void)read_data_record(folder.path()); }),
                HasSubstr(kDataRecordFile))
        << reading;
  }
}

TEST(DataRecord, OfAnEarlierVersionIsTheConfigurationsColumns) {
  const TemporaryFolder folder;
  folder.write("finetune_state.json",
               R"({"config": {"task": "sequence_classification", "text_column": "body",
                   "label_column": null, "choice_columns": []}})");
  const auto record = read_data_record(folder.path());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->task, "sequence_classification");
  EXPECT_EQ(record->columns, (ColumnNames{.text_column = "body"}));
}

TEST(DataRecord, ThatIsDamagedIsRefusedWithItsPath) {
  for (const std::string text :
       {"", "[]", "{", "{}", R"({"task": "mlm"})", R"({"task": 1, "columns": {}})",
        R"({"task": "mlm", "columns": {"text_column": 3}})",
        R"({"task": "mlm", "columns": {"choice_columns": "a"}})",
        R"({"task": "mlm", "columns": {}, "class_weights": [0]})"}) {
    const TemporaryFolder folder;
    const std::string path = folder.write(kDataRecordFile, text);
    EXPECT_THAT(message_of<Error>([&] { (void)read_data_record(folder.path()); }), HasSubstr(path))
        << text;
  }
}

}  // namespace
}  // namespace finetune
