// SPDX-License-Identifier: MIT
#include "finetune/data/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/text_dataset.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::string> rows_of(const std::string& path, const RowOptions& options = {}) {
  std::vector<std::string> rows;
  visit_rows({path}, options, [&](const DataRow& row) {
    rows.push_back(row.position.substr(row.position.find_last_of('/') + 1) + " " +
                   row.columns.dump());
    return true;
  });
  return rows;
}

std::string error_of(const std::string& path) {
  return message_of<Error>([&] { static_cast<void>(rows_of(path)); });
}

TEST(Rows, ReadsQuotedFieldsThatHoldSeparatorsQuotesAndLineEnds) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.csv", "\xEF\xBB\xBFtext,label\r\n\"a, \"\"b\"\"\r\nc\",1\r\n\r\nx \"y\",\"\"\n,2");
  EXPECT_THAT(rows_of(path), ElementsAre(R"(a.csv:2 {"text":"a, \"b\"\r\nc","label":"1"})",
                                         R"(a.csv:5 {"text":"x \"y\"","label":""})",
                                         R"(a.csv:6 {"text":"","label":"2"})"));
  EXPECT_EQ(count_rows({path}, "train_file"), 3);
}

TEST(Rows, OfAdjacentSharesAreDisjointAndDependOnTheSeed) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "row " + std::to_string(i) + "\n";
  const std::string path = folder.write("a.txt", text);
  const auto share = [&](int64_t begin, int64_t end, uint64_t seed, RowRange range = {}) {
    RowOptions options;
    options.share = {.total = 40, .seed = seed, .positions = {.begin = begin, .end = end}};
    options.rows = range;
    return rows_of(path, options);
  };
  const std::vector<std::string> held_out = share(0, 8, 7);
  const std::vector<std::string> rest = share(8, 40, 7);
  EXPECT_EQ(held_out.size(), 8U);
  EXPECT_EQ(rest.size(), 32U);
  std::vector<std::string> both = rest;
  both.insert(both.end(), held_out.begin(), held_out.end());
  std::vector<std::string> all = rows_of(path);
  std::ranges::sort(both);
  std::ranges::sort(all);
  EXPECT_EQ(both, all);
  EXPECT_EQ(share(0, 8, 7), held_out);
  EXPECT_NE(share(0, 8, 8), held_out);
  // A range counts the rows of the share.
  EXPECT_THAT(share(0, 8, 7, {.begin = 2, .end = 4}), ElementsAre(held_out[2], held_out[3]));
}

TEST(Rows, ReplaceBytesThatAreNoUtf8WhereAskedTo) {
  const TemporaryFolder folder;
  RowOptions replace;
  replace.replace_broken_utf8 = true;
  EXPECT_THAT(rows_of(folder.write("a.txt",
                                   "good\nb\xE9"
                                   "d\n\xF0\x9F\x98 x\xFF\xFF\n"),
                      replace),
              ElementsAre(R"(a.txt:1 {"text":"good"})", "a.txt:2 {\"text\":\"b\uFFFDd\"}",
                          "a.txt:3 {\"text\":\"\uFFFD x\uFFFD\uFFFD\"}"));
  EXPECT_THAT(rows_of(folder.write("a.jsonl", "{\"a\": \"\xC3(\"}\n"), replace),
              ElementsAre("a.jsonl:1 {\"a\":\"\uFFFD(\"}"));
  EXPECT_THAT(rows_of(folder.write("a.csv", "a\n\xFF\n"), replace),
              ElementsAre("a.csv:2 {\"a\":\"\uFFFD\"}"));
}

TEST(Rows, ReplaceHalvesOfCharactersThatEscapesStandForOrNameThem) {
  const TemporaryFolder folder;
  RowOptions replace;
  replace.replace_broken_utf8 = true;
  const std::string row = R"({"a": "x\ud800\\ud800 \uD83D\uDE00 \udc00\ud83d"})"
                          "\n";
  const std::string replaced = "{\"a\":\"x\uFFFD\\\\ud800 \U0001F600 \uFFFD\uFFFD\"}";
  for (const char* name : {"a.jsonl", "a.json"}) {
    const std::string path = folder.write(name, row);
    EXPECT_THAT(rows_of(path, replace), ElementsAre(std::string(name) + ":1 " + replaced));
    EXPECT_GOLDEN(error_of(path));
  }
}

TEST(Rows, SeparatesFieldsOfTsvByTabs) {
  const TemporaryFolder folder;
  EXPECT_THAT(rows_of(folder.write("a.tsv", "a\tb,c\n1, 2\t\"x\ty\"\n")),
              ElementsAre(R"(a.tsv:2 {"a":"1, 2","b,c":"x\ty"})"));
}

TEST(Rows, ReadsAListOfObjectsALineOrMoreEach) {
  const TemporaryFolder folder;
  const std::vector<std::string> expected = {R"(a.json:1, row 1 {"a":"]},{"})",
                                             R"(a.json:2, row 2 {"a":[{"b":2}]})"};
  const std::string list = "[{\"a\": \"]},{\"},\n {\"a\": [{\"b\":\n2}]} ]";
  EXPECT_EQ(rows_of(folder.write("a.json", list)), expected);
  EXPECT_EQ(rows_of(folder.write("a.json", "{\"version\": {\"data\": 1}, \"data\" : " + list +
                                               ", \"more\": [\"}\"]}\n")),
            expected);
  EXPECT_EQ(count_rows({folder / "a.json"}, "train_file"), 2);
}

TEST(Rows, ReadsObjectsOneAfterTheOtherInAJsonFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      rows_of(folder.write("a.json", "{\"data\": [1]}\n\n{\"a\":\n 2}{\"a\": 3}\n")),
      ElementsAre(R"(a.json:1 {"data":[1]})", R"(a.json:3 {"a":2})", R"(a.json:4 {"a":3})"));
  EXPECT_THAT(rows_of(folder.write("b.json", "[]")), IsEmpty());
}

TEST(Rows, ReadsSentencesOfConll) {
  const TemporaryFolder folder;
  EXPECT_THAT(rows_of(folder.write(
                  "a.conll", "-DOCSTART- -X- O\n\nAda NNP B-PER\nran  VB O \n\n\nx y\tB-LOC\n")),
              ElementsAre(R"(a.conll:3 {"tokens":["Ada","ran"],"ner_tags":["B-PER","O"]})",
                          R"(a.conll:7 {"tokens":["x y"],"ner_tags":["B-LOC"]})"));
  EXPECT_THAT(rows_of(folder.write("b.iob", "Ada\nran\n")),
              ElementsAre(R"(b.iob:1 {"tokens":["Ada","ran"]})"));
}

TEST(Rows, ReadsMemoryInsteadOfFiles) {
  RowOptions options;
  options.key = "input";
  options.json_lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}";
  EXPECT_THAT(rows_of("not there", options),
              ElementsAre("input:1 {\"text\":\"a\"}", "input:2 {\"text\":\"b\"}"));
}

TEST(Rows, GivesOnlyTheRangeAskedFor) {
  const TemporaryFolder folder;
  RowOptions options;
  options.rows = {.begin = 1, .end = 2};
  EXPECT_THAT(rows_of(folder.write("a.csv", "a\n1\n2\n3\n"), options),
              ElementsAre(R"(a.csv:3 {"a":"2"})"));
}

TEST(Rows, NamesPositionAndReasonOfWhatCannotBeRead) {
  struct Case {
    std::string name, content, reason;
  };
  const std::string deep(100, '[');
  for (const Case& c : std::vector<Case>{
           {"a.csv", "a,b\n1,2\n3\n", "a.csv:3: has 1 field where the header has 2"},
           {"b.csv", "a,b\n1,\"2\n3,4\n", "b.csv:2: the row that begins here has a quote"},
           {"c.csv", "a,b\n1,\"2\"3\n", "c.csv:2: field 2 has text after its closing quote"},
           {"d.csv", "a,a\n", "d.csv:1: column 'a' is there twice"},
           {"e.csv", "a\n\xFF\n", "e.csv:2: invalid UTF-8 (0xFF)"},
           {"q.csv", "a,b\n1,\"2\r\n\n34\xFF\"\n",
            "q.csv:2: invalid UTF-8 (0xFF) at byte 3 of line 3 of the row"},
           {"f.json", "[{\"a\": 1}, {\"a\": 1,}]", "f.json:1, row 2: is not valid JSON"},
           {"g.json", "[{\"a\": 1}\n {\"a\": 1}]", "g.json:2: there is no comma after row 1"},
           {"h.json", "[{\"a\": 1},", "h.json:1: the list of rows has no end"},
           {"i.json", "[{\"a\": 1}, 3]", "i.json:1: row 2 of the list is no JSON object"},
           {"j.json", "[{\"a\": 1}] 3", "there is more after the list"},
           {"k.json", "\n{\"a\": [", "k.json:2: the object that begins here has no end"},
           {"l.json", "3", "l.json:1: the file is no JSON object"},
           {"m.json", "{\"a\": 1, \"a\": 2}", "m.json:1"},
           {"n.json", "{\"a\": " + deep + "}", "n.json:1"},
           {"o.conll", "a O\nb\n", "o.conll:1: line 2 of the sentence has no tag"},
           {"p.json", "{\"a\":\n nul}", "p.json:1, line 2: is not valid JSON"},
       }) {
    const TemporaryFolder folder;
    EXPECT_THAT(error_of(folder.write(c.name, c.content)), HasSubstr(c.reason)) << c.name;
  }
}

TEST(Rows, BringTextToMaskedLanguageModelling) {
  const TemporaryFolder folder;
  TextOptions options;
  options.line_by_line = true;
  options.max_seq_length = 16;
  options.text_column = "body";
  const std::vector<std::string> files = {
      folder.write("a.csv", "id,body\n1,\"unu\ndu\"\n"),
      folder.write("b.tsv", "id\tbody\n1\ttri\n"),
      folder.write("c.json", "[{\"id\": 1, \"body\": \"kvar\"}]"),
  };
  const testing::ByteTokenizer tokenizer;
  const auto data = build_text_dataset(files, tokenizer, options);
  std::vector<std::string> texts;
  for (int64_t i = 0; i < data->size(); ++i) {
    texts.push_back(tokenizer.decode(data->get(i).input_ids.to_vector(), true));
  }
  EXPECT_THAT(texts, ElementsAre("unu\ndu", "tri", "kvar"));
}

}  // namespace
}  // namespace finetune
