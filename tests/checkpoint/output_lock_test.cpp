// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/output_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::TemporaryFolder;
using ::testing::HasSubstr;

TEST(OutputLock, IsHeldByOneAtATime) {
  const TemporaryFolder folder;
  std::optional<OutputLock> first(folder / "out");
  try {
    const OutputLock second(folder / "out");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBusy);
    EXPECT_EQ(error.exit_code(), 5);
    EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(::getpid())));
    EXPECT_THAT(error.what(), HasSubstr(" UTC"));
  }
  first.reset();
  const OutputLock third(folder / "out");
}

TEST(OutputLock, DoesNotCareAboutOtherFolders) {
  const TemporaryFolder folder;
  const OutputLock first(folder / "a");
  const OutputLock second(folder / "b");
}

TEST(OutputLock, YieldsAtOnceWhenItsOwnerIsKilled) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputLock lock(folder.path());
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  try {
    const OutputLock second(folder.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(child)));
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const OutputLock third(folder.path());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(OutputLock, SurvivesARecordThatIsNone) {
  const TemporaryFolder folder;
  folder.write(".finetune.lock", "{\"pid\": \"x\", \xff");
  const OutputLock lock(folder.path());
}

TEST(OutputLock, SaysWhereItMayNotWrite) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(const OutputLock lock(folder / "file"), Error);
}

}  // namespace
}  // namespace finetune::checkpoint
