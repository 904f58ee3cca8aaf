// SPDX-License-Identifier: MIT
#include "finetune/base/mount.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/temporary_folder.h"

namespace finetune {
namespace {

constexpr char kMountinfo[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:40 / /content/drive rw,nosuid - fuse.drive drive rw,user_id=0\n"
    "31 22 0:41 / /content/my\\040drive rw - fuse.rclone remote:x rw\n"
    "no mount\n"
    "32 22 0:42 / /mnt/nas rw shared:5 master:2 - nfs4 nas:/home rw\n"
    "33 22 0:43 / /mnt/nas rw - ext4 /dev/sdb rw\n";

std::string type_at(const std::string& path) {
  const auto mount = find_mount(parse_mounts(kMountinfo), path);
  return mount ? mount->type : "none";
}

TEST(Mount, IsThatOfTheLongestPointAbove) {
  EXPECT_EQ(type_at("/home/me"), "ext4");
  EXPECT_EQ(type_at("/content/drive"), "fuse.drive");
  EXPECT_EQ(type_at("/content/drive/MyDrive/run"), "fuse.drive");
  EXPECT_EQ(type_at("/content/drives/run"), "ext4") << "a name that only begins alike";
  EXPECT_EQ(type_at("/content/my drive/run"), "fuse.rclone");
  EXPECT_EQ(type_at("/mnt/nas/x"), "ext4") << "what is mounted over it later";
  EXPECT_EQ(type_at("relative"), "none");
  EXPECT_FALSE(find_mount({}, "/x"));
}

TEST(Mount, KnowsWhichTypesAreRemote) {
  for (const char* type : {"fuse.drive", "fuse", "fuse.sshfs", "fuse.rclone", "fuse.gcsfuse", "nfs",
                           "nfs4", "cifs", "smb3", "9p", "drvfs"}) {
    EXPECT_TRUE(is_remote_type(type)) << type;
  }
  for (const char* type : {"ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuseblk", "zfs",
                           "fuse.fuse-overlayfs", "fusectl"}) {
    EXPECT_FALSE(is_remote_type(type)) << type;
  }
}

TEST(Mount, OfAPathThatIsMissingIsItsParents) {
  const testing::TemporaryFolder folder;
  const auto here = mount_of(folder.path());
  ASSERT_TRUE(here);
  EXPECT_EQ(mount_of(folder / "a/b/c")->point, here->point);
  EXPECT_TRUE(mount_of("/proc/self/stat")->type == "proc") << "links are followed";
}

// The kernel's list in a chroot into a plain folder: the mounts below it, but not its own.
constexpr char kMountinfoOfAChroot[] =
    "41 22 0:5 / /proc rw - proc proc rw\n"
    "42 22 0:6 / /sys rw - sysfs sysfs rw\n";

TEST(Mount, IsTheParentMountWhereMountinfoListsNoneAboveThePath) {
  const testing::TemporaryFolder folder;
  for (const char* mountinfo : {kMountinfoOfAChroot, ""}) {
    const auto here = mount_of(folder.path(), mountinfo);
    ASSERT_TRUE(here) << mountinfo;
    EXPECT_EQ(here->point, "/");
    EXPECT_FALSE(here->type.empty());
    const auto missing = mount_of(folder / "a/b/c", mountinfo);
    ASSERT_TRUE(missing);
    EXPECT_EQ(missing->type, here->type);
    const auto proc = mount_of("/proc/self/stat", mountinfo);
    ASSERT_TRUE(proc);
    EXPECT_EQ(proc->type, "proc") << "by its magic number where it is not listed";
  }
}

TEST(Mount, HasTheTypeThatMountinfoReportsAlsoWhereItIsNotListed) {
  const testing::TemporaryFolder folder;
  const auto listed = mount_of(folder.path());
  ASSERT_TRUE(listed);
  const auto unlisted = mount_of(folder.path(), "");
  ASSERT_TRUE(unlisted);
  // Only mountinfo names the program of a FUSE mount.
  const bool is_fuse = listed->type.starts_with("fuse.");
  EXPECT_EQ(is_remote_type(unlisted->type), is_fuse || is_remote_type(listed->type));
}

TEST(Mount, OfAChrootCanBePretendedByTests) {
  const testing::TemporaryFolder folder;
  ::setenv("FINETUNE_TEST_MOUNT", ((folder / "drive") + "=fuse.drive").c_str(), 1);
  std::filesystem::create_directories(folder / "local");
  const auto drive = mount_of(folder / "drive/x", kMountinfoOfAChroot);
  const auto local = mount_of(folder / "local", kMountinfoOfAChroot);
  ::unsetenv("FINETUNE_TEST_MOUNT");
  ASSERT_TRUE(drive);
  EXPECT_EQ(drive->type, "fuse.drive");
  ASSERT_TRUE(local);
  EXPECT_NE(local->type, "fuse.drive");
}

TEST(Mount, CanBePretendedByTests) {
  const testing::TemporaryFolder folder;
  ::setenv("FINETUNE_TEST_MOUNT", ((folder / "drive") + "=fuse.drive").c_str(), 1);
  std::filesystem::create_directories(folder / "local");
  std::filesystem::create_directory_symlink(folder / "drive", folder / "local/link");
  EXPECT_EQ(mount_of(folder / "drive/x")->type, "fuse.drive");
  EXPECT_NE(mount_of(folder / "local")->type, "fuse.drive");
  std::filesystem::create_directories(folder / "drive");
  EXPECT_EQ(mount_of(folder / "local/link/x")->type, "fuse.drive") << "through a link";
  ::unsetenv("FINETUNE_TEST_MOUNT");
}

}  // namespace
}  // namespace finetune
