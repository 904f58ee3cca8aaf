// SPDX-License-Identifier: MIT
// Messages of `finetune predict` about a wrong command line or wrong rows.
// tests/parity/test_predict.py compares answers with transformers'.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

void expect_refused(const Arguments& arguments, int code, const std::string& part) {
  Arguments words = {"predict"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const ProcessResult result = finetune(words);
  EXPECT_EQ(result.code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST(PredictCommand, SaysWhatIsMissing) {
  expect_refused({"--text", "x"}, 2, "finetune predict needs the model's folder first");
  expect_refused({kMaskedLm}, 2, "finetune predict needs --text or --input");
  expect_refused({kMaskedLm, "--task", "question-answering", "--question", "who?"}, 2,
                 "1 of --question and 0 of --context");
  expect_refused({kMaskedLm, "--task", "multiple-choice", "--text", "a", "--choice", "b"}, 2,
                 "two or more of --choice");
  expect_refused(
      {kMaskedLm, "--task", "text-classification", "--text", "a", "b", "--text_pair", "c"}, 2,
      "2 of --text and 1 of --text_pair");
}

TEST(PredictCommand, RefusesOptionsOfAnotherTask) {
  expect_refused({kMaskedLm, "--text", "x", "--doc_stride", "5"}, 2,
                 "--doc_stride is for question-answering, the model's task is fill-mask");
  expect_refused({kMaskedLm, "--text", "x", "--choice", "a", "b"}, 2,
                 "--choice is for multiple-choice");
  expect_refused({kMaskedLm, "--text", "x", "--tok_k", "5"}, 2, "unknown option '--tok_k'");
  expect_refused({kMaskedLm, "--text", "x", "--task", "fill-masks"}, 2,
                 "did you mean 'fill-mask'?");
}

TEST(PredictCommand, RefusesAModelOfAnotherTask) {
  expect_refused({kMaskedLm, "--task", "ner", "--text", "x"}, 1,
                 "missing; is it a model for token-classification?");
}

TEST(PredictCommand, NamesTheRowAndTheColumnsThatAreThere) {
  const TemporaryFolder folder;
  const std::string rows = folder.write("rows.jsonl", "{\"a\": \"x <mask>\", \"b\": \"y\"}\n");
  expect_refused({kMaskedLm, "--input", rows}, 2,
                 rows +
                     ":1: several columns hold text; the row has the columns \"a\", \"b\"; set "
                     "--text_column");
  expect_refused({kMaskedLm, "--input", rows, "--text_column", "c"}, 2,
                 rows + ":1: column 'c' is not there");
  EXPECT_EQ(finetune({"predict", kMaskedLm, "--input", rows, "--text_column", "a"}).code, 0);
}

TEST(PredictCommand, AnswersRowsOfEveryFormatAlike) {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& name, const std::string& content) {
    const ProcessResult result =
        finetune({"predict", kMaskedLm, "--use_cpu", "--input", folder.write(name, content)});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string lines = said("in.txt", "A <mask> light.\nThe \"sea\" is <mask>.\n");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(said("in.jsonl",
                 "{\"text\": \"A <mask> light.\"}\n{\"text\": \"The \\\"sea\\\" is <mask>.\"}\n"),
            lines);
  EXPECT_EQ(said("in.csv", "text\nA <mask> light.\n\"The \"\"sea\"\" is <mask>.\"\n"), lines);
}

}  // namespace
}  // namespace finetune::testing
