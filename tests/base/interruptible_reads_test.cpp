// SPDX-License-Identifier: MIT
#include "finetune/base/interruptible_reads.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/trash_safe.h"

namespace finetune {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

class InterruptibleReadsTest : public ::testing::Test {
 protected:
  ~InterruptibleReadsTest() override { interrupt::reset(); }
  TemporaryFolder folder_;
  std::shared_ptr<FileSystem> files_ = interruptible_reads(shared_local_files(), "looking");
};

TEST_F(InterruptibleReadsTest, EndOnceAStopIsAskedFor) {
  const std::string path = folder_.write("a", "saluton");
  EXPECT_EQ(files_->read_all(path), "saluton");
  const std::unique_ptr<ReadableFile> file = files_->open(path);
  interrupt::request(SIGTERM);
  char byte = 0;
  EXPECT_EQ(message_of<Interrupted>([&] { file->read_at(0, &byte, 1); }), "looking");
  EXPECT_EQ(message_of<Interrupted>([&] { (void)files_->open(path); }), "looking");
}

TEST_F(InterruptibleReadsTest, GiveTheBytesOfTheFile) {
  std::string content((size_t{33} << 20) + 5, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 2654435761U >> 13);
  const std::string path = folder_.write("a", content);
  EXPECT_TRUE(files_->read_all(path) == content);
}

TEST_F(InterruptibleReadsTest, LeaveEveryChangeAsItIs) {
  interrupt::request(SIGTERM);
  files_->write_atomically(folder_ / "a", "saluton");
  files_->rename(folder_ / "a", folder_ / "b");
  EXPECT_EQ(FileSystem::local().read_all(folder_ / "b"), "saluton");
}

}  // namespace
}  // namespace finetune
