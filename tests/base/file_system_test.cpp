// SPDX-License-Identifier: MIT
#include "finetune/base/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system_stand_in.h"
#include "support/fault_injecting_file_system.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

FileSystem& files() { return FileSystem::local(); }

TEST(FileSystem, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  const auto file = files().create(folder / "a");
  file->write("salu");
  file->write("ton");
  file->sync();
  file->close();
  EXPECT_EQ(files().read_all(folder / "a"), "saluton");
  const auto more = files().append(folder / "a");
  more->write("!");
  more->close();
  EXPECT_EQ(files().read_all(folder / "a"), "saluton!");
  files().truncate(folder / "a", 2);
  EXPECT_EQ(files().read_all(folder / "a"), "sa");
}

TEST(FileSystem, ReadsAtAnyOffsetAndNeverBeyondTheEnd) {
  const TemporaryFolder folder;
  const auto file = files().open(folder.write("a", "saluton"));
  EXPECT_EQ(file->size(), 7U);
  std::string part(3, ' ');
  file->read_at(4, part.data(), 3);
  EXPECT_EQ(part, "ton");
  EXPECT_GOLDEN(message_of<Error>([&] { file->read_at(5, part.data(), 3); }));
}

TEST(FileSystem, NamesPathAndReasonOfEveryRefusal) {
  const TemporaryFolder folder;
  folder.write("a", "x");
  const auto expect = [&](auto action, const std::string& reason) {
    EXPECT_THAT(message_of<Error>(action), AllOf(HasSubstr(folder.path()), HasSubstr(reason)));
  };
  expect([&] { static_cast<void>(files().open(folder / "no")); }, "No such file");
  expect([&] { static_cast<void>(files().open(folder.path())); }, "directory");
  expect([&] { static_cast<void>(files().create(folder / "no/a")); }, "No such file");
  expect([&] { files().make_directory(folder / "a"); }, "exists");
  expect([&] { files().make_directories(folder / "a"); }, "Not a directory");
  expect([&] { files().remove_file(folder / "no"); }, "No such file");
  expect([&] { static_cast<void>(files().list(folder / "no")); }, "No such file");
  expect([&] { static_cast<void>(files().read_all(folder / "a", 0)); }, "1 bytes, more than the 0");
}

// If the code under test blocks, this test hangs until its timeout.
TEST(FileSystem, RefusesWhatIsNoRegularFileAtOnce) {
  const testing::TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string socket_path = folder / "socket";
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(socket_path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::pair<std::string, std::string> cases[] = {
      {fifo, "it is a FIFO (named pipe) where a regular file is needed"},
      {socket_path, "it is a socket where a regular file is needed"},
      {"/dev/null", "it is a device where a regular file is needed"},
      {folder.path(), "Is a directory"}};
  for (const auto& one : cases) {
    const std::string& path = one.first;
    const std::string expected = "cannot open '" + path + "': " + one.second;
    EXPECT_EQ(testing::message_of<Error>([&] { (void)files().open(path); }), expected);
    EXPECT_EQ(testing::message_of<Error>([&] { (void)files().read_all(path, 1000); }), expected);
  }
  ::close(socket);
}

// A link in a shared folder could lead to any file of the user.
TEST(FileSystem, WritesThroughNoLinkAndWaitsForNoFifo) {
  const testing::TemporaryFolder folder;
  const std::string target = folder.write("target", "mine");
  const std::string link = folder / "link";
  std::filesystem::create_symlink(target, link);
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto expect_refused = [&](const auto& action, const std::string& verb) {
    EXPECT_EQ(testing::message_of<Error>([&] { action(link); }),
              "cannot " + verb + " '" + link + "': it is a symbolic link; remove it");
    EXPECT_EQ(testing::message_of<Error>([&] { action(fifo); }),
              "cannot " + verb + " '" + fifo +
                  "': it is a FIFO (named pipe) where a regular file is needed");
  };
  expect_refused([&](const std::string& path) { (void)files().create(path); }, "create");
  expect_refused([&](const std::string& path) { (void)files().append(path); }, "append to");
  expect_refused([&](const std::string& path) { files().truncate(path, 0); }, "shorten");
  EXPECT_EQ(files().read_all(target), "mine");
  files().write_atomically(link, "new");
  EXPECT_EQ(files().read_all(target), "mine");
  EXPECT_EQ(files().read_all(link), "new");
}

TEST(FileSystem, SaysWhatToDoOnAFullDisk) {
  if (files().type("/dev/full") == FileType::kMissing) GTEST_SKIP() << "/dev/full is missing";
  const auto file = files().append("/dev/full");
  EXPECT_GOLDEN(message_of<Error>([&] { file->write("x"); }));
}

TEST(FileSystem, RenamesOntoNewNamesOnlyWhereAskedTo) {
  const TemporaryFolder folder;
  folder.write("a", "1");
  folder.write("b", "2");
  EXPECT_THROW(files().rename_new(folder / "a", folder / "b"), Error);
  EXPECT_EQ(files().read_all(folder / "b"), "2");
  files().rename(folder / "a", folder / "b");
  EXPECT_EQ(files().read_all(folder / "b"), "1");
  files().rename_new(folder / "b", folder / "c");
  EXPECT_THAT(files().list(folder.path()), ElementsAre("c"));
}

TEST(FileSystem, WritesAtomicallyAndLeavesNothingElse) {
  const TemporaryFolder folder;
  files().write_atomically(folder / "a", "1");
  files().write_atomically(folder / "a", "2");
  EXPECT_EQ(files().read_all(folder / "a"), "2");
  EXPECT_THAT(files().list(folder.path()), ElementsAre("a"));
  // A folder with the target's name: the rename fails, and the temporary file is deleted.
  files().make_directory(folder / "d");
  EXPECT_THROW(files().write_atomically(folder / "d", "3"), Error);
  EXPECT_THAT(files().list(folder.path()), ElementsAre("a", "d"));
}

TEST(FileSystem, RemovesTreesWithoutFollowingLinks) {
  const TemporaryFolder folder;
  files().make_directories(folder / "tree/deep/deeper");
  folder.write("tree/deep/a", "x");
  folder.write("kept", "x");
  files().make_directory(folder / "outside");
  folder.write("outside/b", "x");
  std::filesystem::create_directory_symlink(folder / "outside", folder / "tree/link");
  std::filesystem::create_symlink(folder / "nowhere", folder / "tree/dangling");
  EXPECT_EQ(files().type(folder / "tree/link"), FileType::kLink);
  files().remove_tree(folder / "tree");
  files().remove_tree(folder / "tree");
  EXPECT_EQ(files().type(folder / "tree"), FileType::kMissing);
  EXPECT_TRUE(files().exists(folder / "outside/b"));
  EXPECT_TRUE(files().exists(folder / "kept"));
}

TEST(FileSystem, KnowsFreeSpace) { EXPECT_GT(files().free_bytes("/tmp"), 0U); }

TEST(FileSystemStandIn, IsTheLocalFileSystemWhileItLives) {
  const TemporaryFolder folder;
  FileSystem& machine = files();
  {
    testing::FaultInjectingFileSystem twin(machine, folder.path());
    const FileSystemStandIn stand_in(twin);
    EXPECT_EQ(&FileSystem::local(), &twin);
    FileSystem::local().make_directory(folder / "made");
    EXPECT_EQ(twin.operations(), 1);
  }
  EXPECT_EQ(&FileSystem::local(), &machine);
  EXPECT_TRUE(machine.exists(folder / "made"));
}

TEST(Paths, AreJoinedAndTakenApart) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b"), "a");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("b"), ".");
  EXPECT_EQ(parent_path("/b"), "/");
  EXPECT_EQ(file_name("a/b"), "b");
  EXPECT_EQ(file_name("a/b/"), "b");
  EXPECT_EQ(file_name("b"), "b");
}

}  // namespace
}  // namespace finetune
