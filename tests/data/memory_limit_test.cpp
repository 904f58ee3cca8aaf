// SPDX-License-Identifier: MIT
#include "data/cache/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/classification_dataset.h"
#include "finetune/data/documents.h"
#include "finetune/data/labels.h"
#include "finetune/data/question_answering_dataset.h"
#include "finetune/data/text_dataset.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using testing::ByteTokenizer;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::string repeated(const std::string& line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

class MemoryLimitTest : public ::testing::Test {
 protected:
  MemoryLimitTest() { no_room_.folder = folder_.write("a-file", "") + "/cache"; }

  [[nodiscard]] TokenCacheOptions cache(int64_t left) const {
    TokenCacheOptions options = no_room_;
    options.memory_left = [left] { return left; };
    return options;
  }
  // Expects that reading succeeds with ample memory, and fails with names and sizes if there is
  // little.
  void expect_bounded(const std::function<void(const TokenCacheOptions&)>& read) const {
    EXPECT_NO_THROW(read(cache(int64_t{1} << 30)));
    EXPECT_NO_THROW(read(no_room_)) << "no limit is set";
    EXPECT_THAT(message_of<Error>([&] { read(cache(2'500'000)); }),
                AllOf(HasSubstr("train_file: the tokens need about "), HasSubstr("at most 2 MB"),
                      HasSubstr("cache_dir"), HasSubstr(no_room_.folder), HasSubstr("are free")));
  }

  TemporaryFolder folder_;
  ByteTokenizer tokenizer_;
  TokenCacheOptions no_room_;
};

TEST_F(MemoryLimitTest, BoundsTextLinesAndBlocks) {
  const std::string path = folder_.write("a.txt", repeated("twenty bytes of text\n", 40'000));
  for (const bool lines : {true, false}) {
    expect_bounded([&](const TokenCacheOptions& cache) {
      TextOptions options;
      options.line_by_line = lines;
      options.max_seq_length = 32;
      options.cache = cache;
      static_cast<void>(build_text_dataset({path}, tokenizer_, options));
    });
  }
}

TEST_F(MemoryLimitTest, BoundsRowsWithLabels) {
  const std::string path =
      folder_.write("a.jsonl", repeated(R"({"text": "twenty bytes of text", "label": "a"})"
                                        "\n",
                                        30'000));
  expect_bounded([&](const TokenCacheOptions& cache) {
    ClassificationOptions options;
    options.labels = LabelMap({"a", "b"}, "test");
    options.cache = cache;
    static_cast<void>(build_classification_dataset({path}, tokenizer_, options));
  });
}

TEST_F(MemoryLimitTest, BoundsDocuments) {
  const std::string path = folder_.write("a.txt", repeated("Twenty bytes of it.\n", 40'000));
  expect_bounded([&](const TokenCacheOptions& cache) {
    DocumentOptions options;
    options.lines_are_documents = true;
    options.longest_sentence = 64;
    options.cache = cache;
    static_cast<void>(read_documents({path}, tokenizer_, options));
  });
}

std::string questions() {
  std::string rows;
  for (int i = 0; i < 20'000; ++i) {
    rows += R"({"id": ")" + std::to_string(i) +
            R"(", "question": "what?", "context": "twenty bytes of text", )"
            R"("answers": {"text": ["bytes"], "answer_start": [7]}})"
            "\n";
  }
  return rows;
}

TEST_F(MemoryLimitTest, BoundsQuestionsThatAreKept) {
  const std::string path = folder_.write("a.jsonl", questions());
  expect_bounded([&](const TokenCacheOptions& cache) {
    QuestionAnsweringOptions options;
    options.max_seq_length = 64;
    options.keep_questions = true;
    options.cache = cache;
    static_cast<void>(build_question_answering_dataset({path}, tokenizer_, options));
  });
}

// Texts and ranges of the questions take four times as much memory as the tokens.
TEST_F(MemoryLimitTest, CountsTextsAndRangesOfQuestionsThatAreKept) {
  const std::string path = folder_.write("a.jsonl", questions());
  QuestionAnsweringOptions options;
  options.max_seq_length = 64;
  options.cache = cache(12'000'000);
  options.keep_questions = false;
  EXPECT_NO_THROW(static_cast<void>(build_question_answering_dataset({path}, tokenizer_, options)));
  options.keep_questions = true;
  EXPECT_THAT(message_of<Error>([&] {
                static_cast<void>(build_question_answering_dataset({path}, tokenizer_, options));
              }),
              AllOf(HasSubstr("need about "), HasSubstr("at most 6 MB"), HasSubstr("cache_dir")));
}

// The total size is estimated from the part that was read; fewer samples need less.
TEST_F(MemoryLimitTest, EstimatesAllOfTheFilesAndTakesMaxSamplesIntoAccount) {
  const std::string path = folder_.write("a.txt", repeated("twenty bytes of text\n", 100'000));
  TextOptions options;
  options.line_by_line = true;
  options.max_seq_length = 32;
  options.threads = 1;
  options.cache = cache(2'000'000);
  const std::string message = message_of<Error>(
      [&] { static_cast<void>(build_text_dataset({path}, tokenizer_, options)); });
  const size_t begin = message.find("about ");
  ASSERT_NE(begin, std::string::npos) << message;
  // 22 ids of 4 bytes and an offset of 8.
  EXPECT_NEAR(std::stod(message.substr(begin + 6)), 9.6, 2.5) << message;
  options.max_samples = 5'000;
  EXPECT_NO_THROW(static_cast<void>(build_text_dataset({path}, tokenizer_, options)));
}

TEST_F(MemoryLimitTest, HoldsWhereTheDiskFillsUp) {
  const std::string path = folder_.write("a.txt", repeated("twenty bytes of text\n", 40'000));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {.rlim_cur = 20'000, .rlim_max = 20'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    TextOptions options;
    options.line_by_line = true;
    options.max_seq_length = 32;
    options.cache = cache(2'500'000);
    options.cache.folder = folder_ / "cache";
    options.cache.tokens_of_block = 3000;
    const std::string message = message_of<Error>(
        [&] { static_cast<void>(build_text_dataset({path}, tokenizer_, options)); });
    ::_exit(message.find("cache_dir cannot keep them") == std::string::npos ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace finetune
