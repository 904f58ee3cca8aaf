// SPDX-License-Identifier: MIT
#include "finetune/base/trash_safe.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

TEST(TrashSafe, EmptiesAFileBeforeItRemovesIt) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("folder-file", "content");
  // A hard link shows what the trash would contain.
  std::filesystem::create_hard_link(path, folder / "trash");
  trash_safe(shared_local_files())->remove_tree(path);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(std::filesystem::file_size(folder / "trash"), 0U);
}

TEST(TrashSafe, LeavesWhatALinkPointsToAlone) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("file", "content");
  std::filesystem::create_symlink(path, folder / "link");
  trash_safe(shared_local_files())->remove_tree(folder / "link");
  EXPECT_FALSE(std::filesystem::exists(folder / "link"));
  EXPECT_EQ(std::filesystem::file_size(path), 7U);
}

}  // namespace
}  // namespace finetune
