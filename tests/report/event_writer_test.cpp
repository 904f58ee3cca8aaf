// SPDX-License-Identifier: MIT
#include "finetune/report/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "finetune/base/error.h"

namespace finetune {
namespace {

using testing::MatchesRegex;

class EventWriterTest : public testing::Test {
 protected:
  EventWriterTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "finetune-events-" + info->name();
    std::filesystem::remove_all(folder_);
  }
  ~EventWriterTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  FileSystem& files_ = FileSystem::local();
};

uint64_t little_endian(std::string_view bytes, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i > 0; --i) {
    value = (value << 8) | static_cast<unsigned char>(bytes.at(i - 1));
  }
  return value;
}

// Computes CRC-32C bit by bit, masked; the unmasked value for "123456789" is 0xe3069283 in
// TensorFlow.
uint32_t masked_crc(std::string_view data) {
  uint32_t crc = 0xffffffffU;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

// Returns the events of a file without their checksums and times (the first field, 9 bytes).
std::vector<std::string> events_of(const std::string& content) {
  std::vector<std::string> events;
  std::string_view rest = content;
  while (!rest.empty()) {
    const size_t size = little_endian(rest, 8);
    const std::string_view event = rest.substr(12, size);
    EXPECT_EQ(little_endian(rest.substr(8), 4), masked_crc(rest.substr(0, 8)));
    EXPECT_EQ(little_endian(rest.substr(12 + size), 4), masked_crc(event));
    EXPECT_EQ(event.at(0), 0x09);
    events.emplace_back(event.substr(9));
    rest.remove_prefix(size + 16);
  }
  return events;
}

std::string bytes(std::initializer_list<int> values) {
  std::string result;
  for (const int value : values) result += static_cast<char>(value);
  return result;
}

TEST_F(EventWriterTest, NamesItsFileAsSummaryWriterDoes) {
  const EventWriter writer(files_, folder_);
  EXPECT_EQ(parent_path(writer.path()), folder_);
  EXPECT_THAT(file_name(writer.path()), MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\." +
                                                     std::to_string(getpid()) + "\\.[0-9]+"));
}

TEST_F(EventWriterTest, WritesTwoFilesInOneFolderApart) {
  const EventWriter first(files_, folder_);
  const EventWriter second(files_, folder_);
  EXPECT_NE(first.path(), second.path());
}

TEST_F(EventWriterTest, StartsWithTheVersionOfTheFormat) {
  const EventWriter writer(files_, folder_);
  const auto events = events_of(files_.read_all(writer.path()));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0], bytes({0x1a, 13}) + "brain.Event:2");
}

// The checksum equals tensorboard's masked_crc32c.
TEST_F(EventWriterTest, FramesARecordAsTensorFlowDoes) {
  const EventWriter writer(files_, folder_);
  const std::string content = files_.read_all(writer.path());
  ASSERT_EQ(content.size(), 12U + 24U + 4U);
  EXPECT_EQ(content.substr(0, 12), bytes({24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22}));
}

TEST_F(EventWriterTest, WritesScalarsWithStepAndTag) {
  EventWriter writer(files_, folder_);
  writer.add_scalar("train/loss", 1.0, 300);
  writer.flush();
  const auto events = events_of(files_.read_all(writer.path()));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1], bytes({0x10, 0xac, 0x02, 0x2a, 19, 0x0a, 17, 0x0a, 10}) + "train/loss" +
                           bytes({0x15, 0, 0, 0x80, 0x3f}));
}

// The bytes of torch's SummaryWriter.add_text("args", '{"a": 1}', 0).
TEST_F(EventWriterTest, WritesTextAsSummaryWriterDoes) {
  EventWriter writer(files_, folder_);
  writer.add_text("args", R"({"a": 1})", 0);
  writer.flush();
  const auto events = events_of(files_.read_all(writer.path()));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1], "*3\n1\n" + bytes({0x11}) + "args/text_summaryB" +
                           bytes({0x12, 8, 7, 0x12, 4, 0x12, 2, 8, 1}) + "B" + bytes({8}) +
                           R"({"a": 1})" + "J" + bytes({8}) + "\n" + bytes({6}) + "\n" +
                           bytes({4}) + "text");
}

TEST_F(EventWriterTest, WritesNaN) {
  EventWriter writer(files_, folder_);
  writer.add_scalar("t", std::numeric_limits<double>::quiet_NaN(), 1);
  writer.flush();
  const auto events = events_of(files_.read_all(writer.path()));
  ASSERT_EQ(events.size(), 2U);
  const auto stored =
      static_cast<uint32_t>(little_endian(events[1].substr(events[1].size() - 4), 4));
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(stored)));
}

TEST_F(EventWriterTest, StartsANewSessionAtThePurgedStep) {
  const EventWriter writer(files_, folder_, 7);
  const auto events = events_of(files_.read_all(writer.path()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[1], bytes({0x10, 7, 0x1a, 13}) + "brain.Event:2");
  EXPECT_EQ(events[2], bytes({0x10, 7, 0x3a, 2, 0x08, 1}));
}

TEST_F(EventWriterTest, LeavesEverythingInTheFileWhenItIsGone) {
  std::string path;
  {
    EventWriter writer(files_, folder_);
    path = writer.path();
    for (int step = 1; step <= 5000; ++step) writer.add_scalar("train/loss", step, step);
  }
  EXPECT_EQ(events_of(files_.read_all(path)).size(), 5001U);
}

TEST_F(EventWriterTest, RefusesAFolderThatCannotBeMade) {
  files_.make_directories(folder_);
  files_.write_atomically(join_path(folder_, "file"), "x");
  EXPECT_THROW(EventWriter(files_, join_path(folder_, "file")), Error);
}

// A file on a disk that becomes full at the second write.
class FullFile : public WritableFile {
 public:
  explicit FullFile(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  void write(const void* data, size_t size) override {
    if (++writes_ > 1) throw Error(ErrorKind::kIo, "no space left");
    file_->write(data, size);
  }
  void sync() override {}
  void close() override {}

 private:
  std::unique_ptr<WritableFile> file_;
  int writes_ = 0;
};

class FullDisk : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<FullFile>(disk_.create(path));
  }
  std::unique_ptr<WritableFile> append(const std::string& path) override {
    return disk_.append(path);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) override { return disk_.open(path); }
  void make_directories(const std::string& path) override { disk_.make_directories(path); }
  void make_directory(const std::string& path) override { disk_.make_directory(path); }
  void sync_directory(const std::string&) override {}
  void rename(const std::string&, const std::string&) override {}
  void rename_new(const std::string&, const std::string&) override {}
  void remove_file(const std::string&) override {}
  void remove_directory(const std::string&) override {}
  void truncate(const std::string&, uint64_t) override {}
  FileType type(const std::string& path) override { return disk_.type(path); }
  std::vector<std::string> list(const std::string& path) override { return disk_.list(path); }
  uint64_t free_bytes(const std::string&) override { return 0; }

 private:
  FileSystem& disk_ = FileSystem::local();
};

TEST_F(EventWriterTest, GoesOnWithoutCurvesWhenTheDiskIsFull) {
  FullDisk disk;
  EventWriter writer(disk, folder_);
  writer.add_scalar("train/loss", 1.0, 1);
  EXPECT_NO_THROW(writer.flush());
  writer.add_scalar("train/loss", 1.0, 2);
  EXPECT_NO_THROW(writer.flush());
  EXPECT_EQ(events_of(files_.read_all(writer.path())).size(), 1U);
}

TEST(TensorboardTag, IsThatOfTransformers) {
  EXPECT_EQ(tensorboard_tag("eval_loss"), "eval/loss");
  EXPECT_EQ(tensorboard_tag("test_accuracy"), "test/accuracy");
  EXPECT_EQ(tensorboard_tag("loss"), "train/loss");
  EXPECT_EQ(tensorboard_tag("train_runtime"), "train/train_runtime");
  EXPECT_EQ(tensorboard_tag("evaluation"), "train/evaluation");
}

TEST_F(EventWriterTest, FolderIsThatOfTheLastSession) {
  files_.make_directories(join_path(folder_, "Jan01_a"));
  files_.make_directories(join_path(folder_, "Dec31_b"));
  files_.make_directories(join_path(folder_, "Zzz"));
  files_.write_atomically(join_path(folder_, "Jan01_a/events.out.tfevents.200.h.1.0"), "");
  files_.write_atomically(join_path(folder_, "Dec31_b/events.out.tfevents.1000.h.1.0"), "");
  EXPECT_EQ(tensorboard_folder(files_, folder_), join_path(folder_, "Dec31_b"));
}

TEST_F(EventWriterTest, FolderIsNewForAFirstSession) {
  const std::string folder = tensorboard_folder(files_, folder_);
  EXPECT_EQ(parent_path(folder), folder_);
  EXPECT_THAT(file_name(folder),
              MatchesRegex("[A-Z][a-z]{2}[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_.+"));
  EXPECT_FALSE(files_.exists(folder));
}

}  // namespace
}  // namespace finetune
