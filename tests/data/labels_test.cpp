// SPDX-License-Identifier: MIT
#include "finetune/data/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

LabelSurvey survey(const std::string& name, const std::string& content,
                   std::optional<ProblemType> problem = {}) {
  const TemporaryFolder folder;
  return survey_labels({folder.write(name, content)}, {}, {}, problem);
}

std::string error_of(const std::string& name, const std::string& content,
                     std::optional<ProblemType> problem = {}) {
  return message_of<Error>([&] { static_cast<void>(survey(name, content, problem)); });
}

TEST(Labels, AreSortedByValueOrCodePoint) {
  EXPECT_THAT(survey("a.jsonl", "{\"label\": 10}\n{\"label\": 9}\n{\"label\": -2}\n{\"label\": 9}")
                  .labels.names(),
              ElementsAre("-2", "9", "10"));
  EXPECT_THAT(survey("a.jsonl", "{\"label\": \"ä\"}\n{\"label\": \"b\"}\n{\"label\": \"B\"}")
                  .labels.names(),
              ElementsAre("B", "b", "ä"));
  EXPECT_THAT(survey("a.jsonl", "{\"label\": true}\n{\"label\": false}").labels.names(),
              ElementsAre("False", "True"));
  EXPECT_THAT(survey("a.csv", "label\n10\n9\n007\n").labels.names(), ElementsAre("7", "9", "10"));
  EXPECT_THAT(survey("a.csv", "label\n10\n9\nx\n").labels.names(), ElementsAre("10", "9", "x"));
}

// Most programs write -1 or -100 where there is no label.
TEST(Labels, AreNoNumbersThatMeanNone) {
  for (const char* none : {"-1", "-100"}) {
    const std::string row = std::string("{\"label\": ") + none + "}";
    EXPECT_GOLDEN(error_of("a.jsonl", "{\"label\": 0}\n" + row + "\n{\"label\": 1}"));
    EXPECT_GOLDEN(error_of("a.csv", "label\n0\n1\n" + std::string(none) + "\n"));
  }
  EXPECT_THAT(survey("a.jsonl", "{\"label\": 1}\n{\"label\": -1}").labels.names(),
              ElementsAre("-1", "1"));
  EXPECT_THAT(survey("a.jsonl", "{\"label\": \"-1\"}\n{\"label\": \"0\"}").labels.names(),
              ElementsAre("-1", "0"));
}

TEST(Labels, OfWordsLeaveOutMinusOneHundred) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("a.jsonl", R"({"tokens": ["a", "b", "c"], "ner_tags": [0, -100, 1]})");
  EXPECT_THAT(survey_word_labels({file}, {}, {}, {}).names(), ElementsAre("0", "1"));
}

TEST(Labels, OfNumbersTakeNoOtherText) {
  for (const char* text : {"label\n1.5\nnan\n", "label\n1e400\n1.5\n", "label\n0.5\nn/a\n"}) {
    EXPECT_THROW((void)survey("a.csv", text), Error) << text;
  }
}

TEST(Labels, DecideTheProblemAsRunClassificationDoes) {
  EXPECT_EQ(survey("a.jsonl", "{\"label\": 1}\n{\"label\": 2.5}").problem,
            ProblemType::kRegression);
  EXPECT_EQ(survey("a.csv", "label\n1\n2.5\n").problem, ProblemType::kRegression);
  EXPECT_EQ(survey("a.jsonl", "{\"label\": [1.5, 2]}\n{\"label\": [3, 4]}").outputs, 2);
  const LabelSurvey several = survey("a.jsonl", "{\"label\": [\"b\", \"a\"]}\n{\"label\": []}");
  EXPECT_EQ(several.problem, ProblemType::kMultiLabel);
  EXPECT_THAT(several.labels.names(), ElementsAre("a", "b"));
  EXPECT_EQ(survey("a.csv", "label\n1\n2\n", ProblemType::kRegression).outputs, 1);
}

TEST(Labels, NameFileLineColumnAndValueOfWhatIsNoLabel) {
  struct Case {
    std::string name, content, reason;
    std::optional<ProblemType> problem = {};
  };
  for (const Case& c : std::vector<Case>{
           {"a.jsonl", "{\"label\": 1}\n{\"label\": \"x\"}",
            "a.jsonl:2: column 'label' holds the text 'x', but the number 1 in"},
           {"b.jsonl", "{\"label\": 1}\n{\"label\": null}", "b.jsonl:2: column 'label' holds null"},
           {"c.jsonl", "{\"label\": 1}\n{\"text\": 1}",
            "c.jsonl:2: column 'label' is not there; the row has the columns \"text\""},
           {"d.csv", "label,text\n,x\n", "d.csv:2: column 'label' holds an empty text"},
           {"e.csv", "text\nx\n", "there is no column 'label', 'labels' or 'label_ids'"},
           {"f.csv", "label\nx\nx\n", "holds the label 'x' alone"},
           {"g.jsonl", "{\"label\": 1}\n{\"label\": [2]}",
            "g.jsonl:2: column 'label' holds a list"},
           {"h.csv", "label\n1\nnan\n",
            "h.csv:3: column 'label' holds the text 'nan' where a number",
            ProblemType::kRegression},
           {"i.jsonl", "{\"label\": 1e300}", "i.jsonl:1: column 'label' holds",
            ProblemType::kRegression},
           {"j.jsonl", "{\"label\": [1.5]}\n{\"label\": [1.5, 2]}", "holds 2 numbers where"},
           {"k.csv", "label\n", "holds no rows"},
           {"l.jsonl", "{\"label\": \"x\"}", "expects a list", ProblemType::kMultiLabel},
       }) {
    EXPECT_THAT(error_of(c.name, c.content, c.problem), HasSubstr(c.reason)) << c.name;
  }
}

TEST(LabelMap, TakesTheOrderOfTheModelWhereItsNamesAreTheSame) {
  const LabelMap map({"contradiction", "entailment", "neutral"});
  EXPECT_THAT(map.in_order_of({"NEUTRAL", "ENTAILMENT", "CONTRADICTION"}).names(),
              ElementsAre("NEUTRAL", "ENTAILMENT", "CONTRADICTION"));
  EXPECT_EQ(map.in_order_of({"LABEL_0", "LABEL_1", "LABEL_2"}), map);
}

TEST(LabelMap, RefusesANameThatIsThereTwice) {
  EXPECT_GOLDEN(message_of<Error>([] { LabelMap({"a", "a"}, "config.json"); }));
  EXPECT_TRUE(LabelMap::numbered(3).is_numbered());
  EXPECT_EQ(LabelMap({"a", "b"}).find("b"), 1);
  EXPECT_EQ(LabelMap({"a", "b"}).find("c"), std::nullopt);
}

TEST(Labels, OfWordsAreCollectedFromAllSentences) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      survey_word_labels({folder.write("a.conll", "a O\nb B-X\n\nc A\n")}, {}, {}, {}).names(),
      ElementsAre("A", "B-X", "O"));
  EXPECT_THAT(survey_word_labels({folder.write("a.csv", "tokens,tags\n\"[\"\"a\"\"]\",\"[3]\"\n")},
                                 {}, {}, {})
                  .names(),
              ElementsAre("3"));
}

}  // namespace
}  // namespace finetune
