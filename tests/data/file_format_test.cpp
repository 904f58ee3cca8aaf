// SPDX-License-Identifier: MIT
// Reading of delimited text: separators, quotes and headers, set or detected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/data/data_files.h"
#include "finetune/data/rows.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::string> rows_of(const std::string& name, const std::string& content,
                                 const ReadingOptions& reading = {}) {
  const TemporaryFolder folder;
  RowOptions options;
  options.reading = reading;
  std::vector<std::string> rows;
  const std::string path = folder.write(name, content);
  visit_rows({path}, options, [&](const DataRow& row) {
    rows.push_back(row.columns.dump());
    return true;
  });
  EXPECT_EQ(count_rows({path}, "train_file", {}, reading), std::ssize(rows));
  return rows;
}

TEST(FileFormat, ReadsQuotesOfGluesFilesAsText) {
  EXPECT_THAT(rows_of("mrpc.tsv",
                      "Quality\t#1 String\t#2 String\n"
                      "1\t\"Yes,\" he said.\t\"No\n"
                      "0\ta \"b\" c\t\"\n"),
              ElementsAre(R"({"Quality":"1","#1 String":"\"Yes,\" he said.","#2 String":"\"No"})",
                          R"({"Quality":"0","#1 String":"a \"b\" c","#2 String":"\""})"));
}

TEST(FileFormat, KeepsQuotesThatFit) {
  const std::string fitting = "a\tb\n\"x\ty\"\t\"\"\"z\"\"\"\n";
  EXPECT_THAT(rows_of("a.tsv", fitting), ElementsAre(R"({"a":"x\ty","b":"\"z\""})"));
  EXPECT_GOLDEN(
      message_of<Error>([&] { (void)rows_of("a.tsv", fitting, {.quoting = Quoting::kNone}); }));
}

TEST(FileFormat, OfCsvTakesQuotesAsTextWhereAskedTo) {
  const std::string content = "a,b\n\"x\" y,2\n";
  EXPECT_GOLDEN(message_of<Error>([&] { (void)rows_of("a.csv", content); }));
  EXPECT_THAT(rows_of("a.csv", content, {.quoting = Quoting::kNone}),
              ElementsAre(R"({"a":"\"x\" y","b":"2"})"));
}

TEST(FileFormat, SeesAnotherSeparatorInTheFirstRows) {
  EXPECT_THAT(
      rows_of("a.csv", "text;label\n\"one; two\";x\nthree, four;y\n"),
      ElementsAre(R"({"text":"one; two","label":"x"})", R"({"text":"three, four","label":"y"})"));
  EXPECT_THAT(rows_of("a.csv", "text\tlabel\na, b\tx\n"),
              ElementsAre(R"({"text":"a, b","label":"x"})"));
  // A single column whose name contains a semicolon is not split.
  EXPECT_THAT(rows_of("a.csv", "text;more\none\ntwo\n"),
              ElementsAre(R"({"text;more":"one"})", R"({"text;more":"two"})"));
  EXPECT_THAT(rows_of("a.csv", "a;b\n1;2\n", {.delimiter = ','}), ElementsAre(R"({"a;b":"1;2"})"));
  EXPECT_THAT(rows_of("a.csv", "a:b\n1:2\n", {.delimiter = ':'}),
              ElementsAre(R"({"a":"1","b":"2"})"));
}

TEST(FileFormat, NamesColumnsByPositionWithoutAHeader) {
  EXPECT_THAT(
      rows_of("cola.tsv", "gj04\t1\t\tThey drank the pub dry.\ngj04\t0\t*\t\"They\n",
              {.header = false}),
      ElementsAre(R"({"column_1":"gj04","column_2":"1","column_3":"","column_4":)"
                  R"("They drank the pub dry."})",
                  R"({"column_1":"gj04","column_2":"0","column_3":"*","column_4":"\"They"})"));
  // Equal fields in the first row cannot be names.
  EXPECT_THAT(rows_of("a.csv", "x,x\n", {.header = false}),
              ElementsAre(R"({"column_1":"x","column_2":"x"})"));
}

TEST(FileFormat, ReadsTextWithTagsAsConllWhereWordsAreTagged) {
  const std::string corpus =
      "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nsaid VBD B-VP O\n\nBonn NNP B-NP B-LOC\n";
  const ReadingOptions any{.conll_text = ConllText::kAny};
  const ReadingOptions entities{.conll_text = ConllText::kEntities};
  for (const ReadingOptions& reading : {any, entities}) {
    EXPECT_THAT(rows_of("train.txt", corpus, reading),
                ElementsAre(R"({"tokens":["EU","said"],"ner_tags":["B-ORG","O"]})",
                            R"({"tokens":["Bonn"],"ner_tags":["B-LOC"]})"));
  }
  EXPECT_EQ(rows_of("train.txt", corpus).size(), 6U);  // lines
  EXPECT_THAT(rows_of("pos.txt", "EU NNP\nsaid VBD\n", any),
              ElementsAre(R"({"tokens":["EU","said"],"ner_tags":["NNP","VBD"]})"));
  // For a tagger, lines of two words are not a corpus.
  EXPECT_THAT(rows_of("towns.txt", "New York\nSan Francisco\n", entities),
              ElementsAre(R"({"text":"New York"})", R"({"text":"San Francisco"})"));
  EXPECT_THAT(rows_of("text.txt", "It rained.\nThe sea was high.\n", any).size(), 2U);
}

}  // namespace
}  // namespace finetune
