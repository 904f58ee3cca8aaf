// SPDX-License-Identifier: MIT
#include "finetune/data/file_record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "finetune/data/text_dataset.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

class FileRecordTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  TokenCacheOptions cache_ = [this] {
    TokenCacheOptions options;
    options.folder = folder_ / "cache";
    return options;
  }();
};

TEST_F(FileRecordTest, SeesThatNothingWasTouched) {
  const std::string path = folder_.write("a.txt", "one line\n");
  const FileRecord record = look_at_files({path});
  EXPECT_EQ(record.files, 1);
  EXPECT_EQ(record.bytes, 9);
  EXPECT_EQ(record.contents, "");
  EXPECT_EQ(look_at_files({path}).seen, record.seen);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::hours(1));
  EXPECT_NE(look_at_files({path}).seen, record.seen);
  EXPECT_THROW((void)look_at_files({folder_ / "none"}), Error);
}

TEST_F(FileRecordTest, ContentsGoByBytesAndEndingsAndNotByPositionOrTime) {
  const std::string path = folder_.write("a.txt", "one line\n");
  const std::string contents = contents_of_files(cache_, {path});
  EXPECT_FALSE(contents.empty());
  EXPECT_EQ(contents_of_files(cache_, {folder_.write("b.txt", "one line\n")}), contents);
  EXPECT_EQ(contents_of_files({}, {path}), contents);  // without a cache
  EXPECT_NE(contents_of_files(cache_, {folder_.write("a.jsonl", "one line\n")}), contents);
  EXPECT_NE(contents_of_files(cache_, {folder_.write("c.txt", "one lime\n")}), contents);
  EXPECT_NE(contents_of_files(cache_, {path, path}), contents);
}

TEST_F(FileRecordTest, AnswersAreForgottenWhereAFileChanges) {
  const std::string path = folder_.write("a.txt", "one line\n");
  EXPECT_EQ(known_contents(cache_, {path}), "");
  const std::string contents = contents_of_files(cache_, {path});
  EXPECT_EQ(known_contents(cache_, {path}), contents);
  EXPECT_EQ(known_contents({}, {path}), "");
  cache_.overwrite = true;  // only applies to tokens
  EXPECT_EQ(known_contents(cache_, {path}), contents);
  folder_.write("a.txt", "two line\n");
  EXPECT_EQ(known_contents(cache_, {path}), "");
  EXPECT_NE(contents_of_files(cache_, {path}), contents);
}

TEST_F(FileRecordTest, TokenisingTellsTheContentsOfItsFiles) {
  const std::string path = folder_.write("a.txt", "one line\ntwo lines\n");
  TextOptions options;
  options.cache = cache_;
  options.line_by_line = true;
  options.max_seq_length = 16;
  options.vocabulary_limit = 1000;
  options.position_limit = 16;
  options.key = "train_file";
  (void)build_text_dataset({path}, testing::ByteTokenizer(), options);
  const std::string known = known_contents(cache_, {path});
  EXPECT_EQ(known, contents_of_files({}, {path}));
}

}  // namespace
}  // namespace finetune
