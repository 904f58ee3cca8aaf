// SPDX-License-Identifier: MIT
#include "finetune/base/locked_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

using testing::TemporaryFolder;
using Mode = LockedFile::Mode;
using Outcome = LockedFile::Outcome;

// Two descriptors of one process exclude each other like two processes.
TEST(LockedFile, ExcludesOthersUntilItIsClosed) {
  const TemporaryFolder folder;
  LockedFile first;
  LockedFile second;
  ASSERT_TRUE(first.open(folder / "lock"));
  ASSERT_TRUE(second.open(folder / "lock"));
  EXPECT_EQ(first.lock(), Outcome::kLocked);
  EXPECT_EQ(second.lock(), Outcome::kHeld);
  EXPECT_EQ(second.lock(Mode::kShared), Outcome::kHeld);
  first.close();
  EXPECT_FALSE(first.is_open());
  EXPECT_EQ(second.lock(Mode::kShared), Outcome::kLocked);
  ASSERT_TRUE(first.open(folder / "lock"));
  EXPECT_EQ(first.lock(Mode::kShared), Outcome::kLocked);
  EXPECT_EQ(first.lock(), Outcome::kHeld);
}

TEST(LockedFile, KnowsWhetherItsNameIsAnotherFile) {
  const TemporaryFolder folder;
  LockedFile file;
  ASSERT_TRUE(file.open(folder / "lock"));
  EXPECT_TRUE(file.is_at(folder / "lock"));
  std::filesystem::rename(folder / "lock", folder / "old");
  EXPECT_FALSE(file.is_at(folder / "lock"));
  EXPECT_TRUE(file.is_at(folder / "old"));
  folder.write("lock", "another");
  EXPECT_FALSE(file.is_at(folder / "lock"));
}

TEST(LockedFile, OpensNoLinkAndWaitsForNoFifo) {
  const TemporaryFolder folder;
  const std::string link = folder / "link";
  std::filesystem::create_symlink(folder / "target", link);
  LockedFile file;
  EXPECT_FALSE(file.open(link));
  EXPECT_EQ(file.error(), ELOOP);
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(file.open(fifo));
  EXPECT_EQ(file.error(), EINVAL);
  EXPECT_FALSE(file.open(folder / "missing/lock"));
  EXPECT_EQ(file.error(), ENOENT);
  EXPECT_FALSE(file.is_open());
}

}  // namespace
}  // namespace finetune
