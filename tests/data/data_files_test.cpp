// SPDX-License-Identifier: MIT
#include "finetune/data/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::string error_of(const std::string& pattern) {
  return message_of<Error>([&] { static_cast<void>(expand_files({pattern}, "validation_file")); });
}

TEST(DataFiles, ReplacesGlobsByTheirMatchesInOrder) {
  const TemporaryFolder folder;
  for (const char* name : {"b2.txt", "b10.txt", "B.txt", "c.jsonl", "d[1].txt"}) {
    folder.write(name, "x");
  }
  EXPECT_THAT(
      expand_files({folder / "c.jsonl", folder / "[bB]*.txt"}, "train_file"),
      ElementsAre(folder / "c.jsonl", folder / "B.txt", folder / "b10.txt", folder / "b2.txt"));
  EXPECT_THAT(expand_files({folder / "d[1].txt"}, "train_file"), ElementsAre(folder / "d[1].txt"));
}

TEST(DataFiles, NamesKeyAndPathOfWhatCannotBeRead) {
  const TemporaryFolder folder;
  folder.write("empty.txt", "");
  EXPECT_THAT(error_of(folder / "no.txt"),
              AllOf(HasSubstr("validation_file"), HasSubstr("no.txt' does not exist")));
  EXPECT_THAT(error_of(folder / "*.csv"), HasSubstr("no file matches"));
  EXPECT_THAT(error_of(folder / "empty.txt"), HasSubstr("empty.txt' is empty"));
  EXPECT_THAT(error_of(folder / "empty"), HasSubstr("does not exist"));
  // Opening a pipe would wait for a writer forever.
  ASSERT_EQ(::mkfifo((folder / "pipe.txt").c_str(), 0600), 0);
  EXPECT_THAT(error_of(folder / "pipe.txt"), HasSubstr("is a pipe or device"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("is a pipe or device"));
}

TEST(DataFiles, ReplacesAFolderByItsFilesInOrder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "shards/inner");
  EXPECT_THAT(error_of(folder / "shards"), HasSubstr("holds no file"));
  for (const char* name :
       {"shards/b.txt", "shards/a.jsonl.gz", "shards/.hidden", "shards/inner/c"}) {
    folder.write(name, "x");
  }
  EXPECT_THAT(expand_files({folder / "shards"}, "train_file"),
              ElementsAre(folder / "shards/a.jsonl.gz", folder / "shards/b.txt"));
}

TEST(DataFiles, KnowsKindsByTheirEnding) {
  EXPECT_EQ(file_kind("a.jsonl"), FileKind::kJsonLines);
  EXPECT_EQ(file_kind("a.JSON"), FileKind::kJson);
  EXPECT_EQ(file_kind("a.csv"), FileKind::kCsv);
  EXPECT_EQ(file_kind("a.tsv"), FileKind::kTsv);
  EXPECT_EQ(file_kind("a.conll"), FileKind::kConll);
  EXPECT_EQ(file_kind("a.parquet"), FileKind::kParquet);
  EXPECT_EQ(file_kind("a.arrow.zst"), FileKind::kArrow);
  EXPECT_EQ(file_kind("a.feather"), FileKind::kArrow);
  EXPECT_EQ(file_kind("a.txt"), FileKind::kText);
  EXPECT_EQ(file_kind("folder.csv/corpus"), FileKind::kText);
  EXPECT_EQ(file_kind("a.jsonl.gz"), FileKind::kJsonLines);
  EXPECT_EQ(file_kind("a.csv.ZST"), FileKind::kCsv);
  EXPECT_EQ(file_kind("a.gz"), FileKind::kText);
  EXPECT_EQ(file_kind("x/a.tfrecord"), FileKind::kTfRecord);
  EXPECT_EQ(file_kind("x/a.tfrecord-00001-of-00010.gz"), FileKind::kTfRecord);
  EXPECT_THAT(message_of<Error>([] { static_cast<void>(file_kind("x/a.xlsx")); }),
              AllOf(HasSubstr("x/a.xlsx"), HasSubstr(".jsonl")));
}

TEST(DataFiles, CountsLinesOfTextAndRowsOfJson) {
  const TemporaryFolder folder;
  const std::string text = folder.write("a.txt", "a\n\nb\r\nc\rd");
  const std::string json = folder.write("b.jsonl", "{}\n\n \t\n{}");
  EXPECT_EQ(count_rows({text}, "train_file"), 5);
  EXPECT_EQ(count_rows({text, json}, "train_file"), 7);
}

// Line ends of all kinds are recognised at the boundaries of the reader's 1 MiB buffer too.
TEST(DataFiles, CountsALineEndThatCrossesTheBufferOnce) {
  const TemporaryFolder folder;
  const std::string half((size_t{1} << 20) - 1, 'x');
  EXPECT_EQ(count_rows({folder.write("a.txt", half + "\r\ny\n")}, "train_file"), 2);
  EXPECT_EQ(count_rows({folder.write("b.txt", half + "\r\r\ny")}, "train_file"), 3);
}

// Expected values: datasets' ReadInstruction for train[:p%].
TEST(DataFiles, SplitsRowsAsDatasetsRoundsPercentages) {
  struct Case {
    int64_t rows, percentage, validation;
  };
  for (const Case& c : std::vector<Case>{{100, 5, 5},
                                         {30, 5, 2},
                                         {50, 5, 2},
                                         {70, 5, 4},
                                         {1000, 1, 10},
                                         {11, 5, 1},
                                         {29, 50, 14}}) {
    const RowSplit split = split_rows(c.rows, c.percentage);
    EXPECT_EQ(split.validation.begin, 0);
    EXPECT_EQ(split.validation.end, c.validation) << c.rows;
    EXPECT_EQ(split.train.begin, c.validation);
    EXPECT_EQ(split.train.end, c.rows);
  }
}

TEST(DataFiles, RefusesASplitThatLeavesAPartEmpty) {
  EXPECT_THAT(
      message_of<Error>([] { static_cast<void>(split_rows(4, 5)); }),
      AllOf(HasSubstr("validation_split_percentage 5 of 4 rows"), HasSubstr("evaluate on")));
  EXPECT_THAT(message_of<Error>([] { static_cast<void>(split_rows(4, 100)); }),
              HasSubstr("train on"));
  EXPECT_THROW(static_cast<void>(split_rows(400, -3)), Error);
}

}  // namespace
}  // namespace finetune
