// SPDX-License-Identifier: MIT
// Input and output of `finetune predict` other than its command line and standard output.
#include <filesystem>

#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

const std::string kLines = "A <mask> light.\nThe \"sea\" is <mask>.\n";

Arguments predict(const Arguments& more) {
  Arguments words = {"predict", kMaskedLm, "--use_cpu", "--top_k", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Runs a command with `input` on standard input.
ProcessResult piped(const std::string& input, const Arguments& words) {
  const TemporaryFolder folder;
  std::string command = "exec '" + binary_path() + "'";
  for (const std::string& word : words) command += " '" + word + "'";
  return run({"/bin/sh", "-c", command + " < '" + folder.write("stdin", input) + "'"});
}

TEST(PredictCommand, ReadsTextFromStandardInput) {
  const TemporaryFolder folder;
  const ProcessResult file = finetune(predict({"--input", folder.write("in.txt", kLines)}));
  ASSERT_EQ(file.code, 0) << file.err;
  const ProcessResult implied = piped(kLines, predict({}));
  EXPECT_EQ(implied.code, 0) << implied.err;
  EXPECT_EQ(implied.out, file.out);
  EXPECT_EQ(piped(kLines, predict({"--input", "-"})).out, file.out);
  const ProcessResult nothing = piped("", predict({}));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("needs --text or --input, or text on standard input"));
}

TEST(PredictCommand, RefusesTheNameOfAFileAsAText) {
  const TemporaryFolder folder;
  for (const std::string& word : {folder.write("in.txt", kLines), std::string("-")}) {
    const ProcessResult result = finetune({"predict", kMaskedLm, word});
    EXPECT_EQ(result.code, 2) << word;
    EXPECT_THAT(result.err, HasSubstr("--input"));
  }
}

TEST(PredictCommand, WritesJsonLinesToAFile) {
  const TemporaryFolder folder;
  const Arguments words = predict({"--input", folder.write("in.txt", kLines)});
  const ProcessResult shown = finetune(words);
  Arguments to_file = words;
  to_file.insert(to_file.end(), {"--output", folder / "out.jsonl"});
  const ProcessResult written = finetune(to_file);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(read_file(folder / "out.jsonl"), shown.out);
}

TEST(PredictCommand, WritesATableWithALineForEachAnswer) {
  const TemporaryFolder folder;
  const std::string input = folder.write("in.txt", kLines);
  const ProcessResult shown = finetune(predict({"--input", input}));
  for (const auto& [name, separator] : {std::pair{"out.csv", ','}, std::pair{"out.tsv", '\t'}}) {
    const ProcessResult written = finetune(predict({"--input", input, "--output", folder / name}));
    ASSERT_EQ(written.code, 0) << written.err;
    const std::string table = read_file(folder / name);
    const std::string s(1, separator);
    EXPECT_TRUE(table.starts_with("row" + s + "score" + s + "token" + s + "token_str" + s +
                                  "sequence\n1" + s))
        << table;
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 4);
    EXPECT_THAT(table, HasSubstr("\n2" + s));
    const Json first = parse_json(shown.out.substr(0, shown.out.find('\n')), "line");
    EXPECT_THAT(table, HasSubstr("row" + s + "score" + s + "token" + s + "token_str" + s +
                                 "sequence\n1" + s + first[0]["score"].dump() + s));
  }
  // A value with quotes is quoted, and its quotes are doubled.
  EXPECT_THAT(read_file(folder / "out.csv"), HasSubstr("\"\"sea\"\""));
}

TEST(PredictCommand, LeavesNoOutputBehindWhereItFails) {
  const TemporaryFolder folder;
  const std::string rows =
      folder.write("in.jsonl", "{\"text\": \"A <mask> light.\"}\n{\"text\": 7}\n");
  const std::string output = folder.write("out.jsonl", "as before\n");
  const ProcessResult failed = finetune(predict({"--input", rows, "--output", output}));
  EXPECT_EQ(failed.code, 1);
  EXPECT_EQ(read_file(output), "as before\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()),
                          std::filesystem::directory_iterator()),
            2);
  const ProcessResult unknown =
      finetune(predict({"--input", rows, "--output", folder / "out.xlsx"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("end it in .jsonl (JSON lines), .csv or .tsv"));
}

}  // namespace
}  // namespace finetune::testing
