// SPDX-License-Identifier: MIT
#include "finetune/data/text_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using testing::ByteTokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const SequenceDataset> build(const std::vector<std::string>& files,
                                             const TextOptions& options) {
  return build_text_dataset(files, ByteTokenizer(), options);
}

TextOptions lines() {
  TextOptions options;
  options.line_by_line = true;
  options.max_seq_length = 16;
  return options;
}

std::string error_of(const std::vector<std::string>& files, const TextOptions& options) {
  return message_of<Error>([&] { static_cast<void>(build(files, options)); });
}

std::string text_at(const Dataset& dataset, int64_t index) {
  return ByteTokenizer().decode(dataset.get(index).input_ids.to_vector(), true);
}

std::vector<std::string> texts_of(const Dataset& dataset) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < dataset.size(); ++i) texts.push_back(text_at(dataset, i));
  return texts;
}

TEST(TextDataset, MakesOneSampleOfEachLineThatIsNotBlank) {
  const TemporaryFolder folder;
  const auto dataset = build({folder.write("a.txt", "unu\n\n \t\u3000\r\ndu\rtri")}, lines());
  EXPECT_THAT(texts_of(*dataset), ElementsAre("unu", "du", "tri"));
  EXPECT_EQ(dataset->get(0).input_ids.front(), ByteTokenizer::kBos);
  EXPECT_EQ(dataset->get(0).input_ids.back(), ByteTokenizer::kEos);
  EXPECT_TRUE(dataset->get(0).labels.empty());
}

TEST(TextDataset, CutsLinesSoThatSpecialTokensStillFit) {
  const TemporaryFolder folder;
  TextOptions options = lines();
  options.max_seq_length = 5;
  const auto dataset = build({folder.write("a.txt", "abcdefgh\n")}, options);
  EXPECT_EQ(text_at(*dataset, 0), "abc");
  EXPECT_EQ(dataset->longest(), 5);
}

TEST(TextDataset, GivesTheSameResultForEveryNumberOfThreads) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::string(static_cast<size_t>(i % 90), 'x') + "\n";
  const std::string path = folder.write("a.txt", text);
  TextOptions options = lines();
  const std::string line_by_line = build({path}, options)->fingerprint();
  options.line_by_line = false;
  const std::string joined = build({path}, options)->fingerprint();
  for (const int64_t threads : {2, 5}) {
    options.threads = threads;
    options.line_by_line = true;
    EXPECT_EQ(build({path}, options)->fingerprint(), line_by_line);
    options.line_by_line = false;
    EXPECT_EQ(build({path}, options)->fingerprint(), joined);
  }
}

TEST(TextDataset, JoinsRowsAcrossFilesAndCutsTheSamplesAskedFor) {
  const TemporaryFolder folder;
  folder.write("b.txt", "cd\nef\ngh");
  folder.write("a.txt", "ab");
  TextOptions options;
  options.max_seq_length = 4;
  options.max_samples = 3;
  const auto dataset = build({folder / "*.txt"}, options);
  EXPECT_THAT(texts_of(*dataset), ElementsAre("ab", "cd", "ef"));
}

TEST(TextDataset, ReadsTheNamedColumnOfJsonRows) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.jsonl",
      "\xEF\xBB\xBF{\"title\": \"x\", \"body\": \"unu\\ndu\"}\n\n{\"body\": \"tri\"}\r\n");
  TextOptions options = lines();
  options.text_column = "body";
  EXPECT_THAT(texts_of(*build({path}, options)), ElementsAre("unu\ndu", "tri"));
}

TEST(TextDataset, GuessesTheOnlyColumnOfText) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"id\": 3, \"sentence\": \"unu\"}\n");
  EXPECT_THAT(texts_of(*build({path}, lines())), ElementsAre("unu"));
}

TEST(TextDataset, AsksForTheColumnWhereThereAreSeveral) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n");
  EXPECT_THAT(error_of({path}, lines()),
              AllOf(HasSubstr("a.jsonl:1"), HasSubstr("\"a\", \"b\""), HasSubstr("text_column")));
}

TEST(TextDataset, TakesRowsThatBringTheirIdsAsTheyAre) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.jsonl",
      "{\"input_ids\": [0, 9, 2], \"attention_mask\": [1, 1, 0], \"labels\": [-100, 7, -100]}\n"
      "{\"input_ids\": [5], \"attention_mask\": [1], \"labels\": [5]}\n");
  TextOptions options;  // for joined texts, but rows with ids are not joined
  const auto dataset = build({path}, options);
  ASSERT_EQ(dataset->size(), 2);
  const Example first = dataset->get(0);
  EXPECT_THAT(std::vector<int32_t>(first.input_ids.begin(), first.input_ids.end()),
              ElementsAre(0, 9, 2));
  EXPECT_THAT(std::vector<int32_t>(first.labels.begin(), first.labels.end()),
              ElementsAre(-100, 7, -100));
  EXPECT_THAT(std::vector<int>(first.attention_mask.begin(), first.attention_mask.end()),
              ElementsAre(1, 1, 0));
  EXPECT_EQ(dataset->get(1).labels[0], 5);
  options.max_samples = 1;
  EXPECT_EQ(build({path}, options)->tokens(), 3);
}

TEST(TextDataset, NamesTheRowOfATokenBeyondTheVocabulary) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "train.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [2]}\n{\"input_ids\": [3, 60000]}\n");
  TextOptions options = lines();
  options.vocabulary_limit = 52000;
  EXPECT_GOLDEN(error_of({path}, options));
}

TEST(TextDataset, RefusesATokenizerThatIsLargerThanTheModelsVocabulary) {
  const TemporaryFolder folder;
  TextOptions options = lines();
  options.vocabulary_limit = 100;
  EXPECT_GOLDEN(error_of({folder.write("a.txt", "AB\nx\n")}, options));
}

TEST(TextDataset, NamesLineAndReasonOfRowsThatCannotBeUsed) {
  struct Case {
    std::string second_row;
    std::string reason;
  };
  const std::string good = "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n";
  for (const Case& c : std::vector<Case>{
           {R"({"input_ids": [1], "labels": [1, 2]})",
            "'labels' has 2 values, but 'input_ids' has 1"},
           {R"({"input_ids": [1]})", "has no 'labels', unlike the first row"},
           {R"({"labels": [1]})", "has no 'input_ids'"},
           {R"({"input_ids": [], "labels": []})", "'input_ids' is empty"},
           {R"({"input_ids": [-1], "labels": [1]})", "token id -1"},
           {R"({"input_ids": [1], "labels": [-5]})", "token id -5"},
           {R"({"input_ids": [1.5], "labels": [1]})", "holds 1.5 at place 1"},
           {R"({"input_ids": [18446744073709551615], "labels": [1]})",
            "holds 18446744073709551615"},
           {R"({"input_ids": [2147483648], "labels": [1]})", "token id 2147483648"},
           {R"({"input_ids": "1", "labels": [1]})", "'input_ids' is not a list"},
           {R"({"input_ids": [1], "labels": [1], "attention_mask": [1]})", "has 'attention_mask'"},
           {R"({"input_ids": [1, 1, 1, 1], "labels": [1, 1, 1, 1]})", "more than the 3 positions"},
           {R"([1, 2])", "is a JSON array, not an object"},
           {R"({"input_ids": [1)", ":2: is not valid JSON; each line"},
       }) {
    const TemporaryFolder folder;
    TextOptions options;
    options.position_limit = 3;
    EXPECT_THAT(error_of({folder.write("a.jsonl", good + c.second_row + "\n")}, options),
                AllOf(HasSubstr("a.jsonl:2"), HasSubstr(c.reason)))
        << c.second_row;
  }
}

TEST(TextDataset, NamesTheColumnsThatARowHasInstead) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.jsonl", "{\"text\": \"x\"}\n{\"body\": \"y\", \"n\": 1}\n");
  EXPECT_GOLDEN(error_of({path}, lines()));
}

TEST(TextDataset, RefusesAColumnThatHoldsNoText) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"text\": \"x\"}\n{\"text\": null}\n");
  EXPECT_GOLDEN(error_of({path}, lines()));
}

TEST(TextDataset, NamesLineAndByteOfInvalidUtf8) {
  const TemporaryFolder folder;
  EXPECT_GOLDEN(error_of({folder.write("a.txt", "bona\nab\xE9 c\n")}, lines()));
  EXPECT_GOLDEN(error_of({folder.write("a.jsonl", "{\"text\": \"\xFF\"}\n")}, lines()));
}

TEST(TextDataset, ReportsTheFirstErrorWhateverTheNumberOfThreads) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 6000; ++i) text += i == 1500 || i == 4500 ? "\xFF\n" : "bona\n";
  const std::string path = folder.write("a.txt", text);
  TextOptions options = lines();
  for (const int64_t threads : {1, 2, 4}) {
    options.threads = threads;
    EXPECT_THAT(error_of({path}, options), HasSubstr("a.txt:1501"));
  }
}

TEST(TextDataset, RefusesLinesAboveSixteenMebibytes) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.txt", "bona\n" + std::string((size_t{16} << 20) + 1, 'x') + "\n");
  EXPECT_GOLDEN(error_of({path}, lines()));
}

TEST(TextDataset, SaysSoWhenTheTextIsShorterThanOneBlock) {
  const TemporaryFolder folder;
  TextOptions options;
  options.max_seq_length = 128;
  EXPECT_GOLDEN(error_of({folder.write("a.txt", "abc\ndef\n")}, options));
}

TEST(TextDataset, SaysSoWhenEveryLineIsBlank) {
  const TemporaryFolder folder;
  EXPECT_GOLDEN(error_of({folder.write("a.txt", "\n \n")}, lines()));
  EXPECT_GOLDEN(error_of({folder.write("a.jsonl", "\n \n")}, {}));
}

TEST(TextDataset, RefusesFilesThatHoldDifferentColumns) {
  const TemporaryFolder folder;
  const std::string ids = folder.write("a.jsonl", "{\"input_ids\": [1]}\n");
  EXPECT_GOLDEN(error_of({ids, folder.write("b.txt", "x")}, lines()));
}

TEST(TextDataset, RefusesAMaximumLengthWithoutRoomForText) {
  const TemporaryFolder folder;
  TextOptions options = lines();
  options.max_seq_length = 2;
  EXPECT_THAT(error_of({folder.write("a.txt", "x")}, options), HasSubstr("max_seq_length 2"));
}

TEST(TextDataset, GivesWayToAStopThatWasAskedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "bona\n");
  interrupt::request(SIGTERM);
  EXPECT_EQ(message_of<Interrupted>([&] { static_cast<void>(build({path}, lines())); }),
            "reading and tokenising train_file");
  interrupt::reset();
}

TEST(TextDataset, ReportsProgressThatNeverFallsAndEndsAtOne) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "bona\n";
  TextOptions options = lines();
  std::vector<double> seen;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  static_cast<void>(build({folder.write("a.txt", text), folder.write("b.txt", "x")}, options));
  ASSERT_GE(seen.size(), 4U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GT(seen.front(), 0.0);
  EXPECT_LT(seen.front(), 0.9);
  EXPECT_EQ(seen.back(), 1.0);
}

TextOptions linebreaks() {
  TextOptions options;
  options.keep_linebreaks = true;
  options.max_seq_length = 3;
  return options;
}

// Returns the bytes of the lines, each between <s> and </s>, as run_clm joins them.
std::vector<int32_t> joined(const std::string& content) {
  const TemporaryFolder folder;
  const auto dataset = build({folder.write("a.txt", content)}, linebreaks());
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    for (const int32_t id : dataset->get(i).input_ids.to_vector()) ids.push_back(id);
  }
  return ids;
}

TEST(TextDataset, KeepsLinebreaksOfJoinedLinesAsOneKindOfByte) {
  const ByteTokenizer tokenizer;
  std::vector<int32_t> expected;
  for (const char* line : {"ab\n", "\n", "c\n", "d"}) {
    for (const int32_t id : tokenizer.add_special_tokens(tokenizer.encode(line))) {
      expected.push_back(id);
    }
  }
  expected.resize(expected.size() / 3 * 3);
  EXPECT_EQ(joined("ab\r\n\nc\rd"), expected);
  EXPECT_NE(joined("ab\r\n\nc\rd\n\n"), expected);
}

TEST(TextDataset, LeavesLinebreaksOutOfLinesThatAreSamples) {
  const TemporaryFolder folder;
  TextOptions options = lines();
  options.keep_linebreaks = true;
  EXPECT_THAT(texts_of(*build({folder.write("a.txt", "unu\ndu\n")}, options)),
              ElementsAre("unu", "du"));
}

}  // namespace
}  // namespace finetune
