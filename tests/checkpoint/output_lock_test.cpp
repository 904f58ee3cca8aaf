// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/output_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/owner.h"
#include "support/golden.h"
#include "support/manual_clock.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::ManualClock;
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

TEST(OutputLock, YieldsAtOnceWhereTheMachineWasRestartedOrTheProcessIdIsReused) {
  const TemporaryFolder folder;
  Owner owner = this_process();
  owner.process_start -= 1;  // the process id was reused by this process
  folder.write(".finetune.lock", to_text(owner));
  { const OutputLock lock(folder.path()); }
  owner.pid_namespace = "pid:[1]";
  owner.host = "a-container";
  folder.write(".finetune.lock", to_text(owner));
  { const OutputLock lock(folder.path()); }
  owner = this_process();
  owner.boot_id = "an-earlier-boot";
  owner.machine_id = "x";
  folder.write(".finetune.lock", to_text(owner));
  if (!this_process().machine_id.empty()) {
    owner.machine_id = this_process().machine_id;
    folder.write(".finetune.lock", to_text(owner));
    const OutputLock lock(folder.path());
  }
}

Owner elsewhere() {
  Owner owner = this_process();
  owner.host = "other-machine";
  owner.boot_id = "other-boot";
  owner.machine_id = "other";
  owner.pid = 4711;
  return owner;
}

TEST(OutputLock, TakesOverFromASilentOwnerElsewhereInUnderAMinute) {
  const TemporaryFolder folder;
  folder.write(".finetune.lock", to_text(elsewhere()));
  ManualClock clock;
  OutputLock lock(folder.path(), {.heartbeat_seconds = 0, .clock = &clock});
  EXPECT_GE(clock.now(), 30.0);
  EXPECT_LT(clock.now(), 60.0);
  EXPECT_TRUE(lock.still_ours());
}

TEST(OutputLock, NamesAnOwnerElsewhereWhoseHeartBeats) {
  const TemporaryFolder folder;
  Owner owner = elsewhere();
  folder.write(".finetune.lock", to_text(owner));
  ManualClock clock([&](double now) {
    owner.beat = static_cast<int64_t>(now) / 10;
    folder.write(".finetune.lock", to_text(owner));
  });
  try {
    const OutputLock lock(folder.path(), {.heartbeat_seconds = 0, .clock = &clock});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBusy);
    EXPECT_GOLDEN(error.what());
  }
  EXPECT_LT(clock.now(), 12.0);
}

TEST(OutputLock, IsFreeAtOnceWhereTheOwnerElsewhereLetsGo) {
  const TemporaryFolder folder;
  folder.write(".finetune.lock", to_text(elsewhere()));
  ManualClock clock([&](double) { folder.write(".finetune.lock", released_text("x")); });
  const OutputLock lock(folder.path(), {.heartbeat_seconds = 0, .clock = &clock});
  EXPECT_LT(clock.now(), 3.0);
}

std::string record(const TemporaryFolder& folder) {
  return FileSystem::local().read_all(folder / ".finetune.lock");
}

TEST(OutputLock, NoticesThatItWasTakenOver) {
  const TemporaryFolder folder;
  OutputLock lock(folder.path(), {.heartbeat_seconds = 0});
  lock.check();
  folder.write(".finetune.lock", to_text(elsewhere()));
  EXPECT_FALSE(lock.is_lost()) << "costs nothing, so it does not look";
  EXPECT_FALSE(lock.still_ours());
  EXPECT_TRUE(lock.is_lost());
  const std::string message = finetune::testing::message_of<Error>([&] { lock.check(); });
  EXPECT_GOLDEN(message);
  folder.write(".finetune.lock", to_text(elsewhere()));
}

// In a bucket each look is a request.
TEST(Lease, LooksOnlyNowAndThenWhereItTrustsItsRecord) {
  const TemporaryFolder folder;
  ManualClock clock;
  Lease lease({.files = shared_local_files(),
               .folder = folder.path(),
               .heartbeat_seconds = 0,
               .trust_seconds = 10,
               .clock = &clock});
  folder.write(".finetune.lock", to_text(elsewhere()));
  EXPECT_TRUE(lease.still_ours());
  clock.sleep(9);
  EXPECT_TRUE(lease.still_ours());
  clock.sleep(2);
  EXPECT_FALSE(lease.still_ours());
}

TEST(OutputLock, IsLostToOneThatIsDoneAlready) {
  const TemporaryFolder folder;
  OutputLock lock(folder.path(), {.heartbeat_seconds = 0});
  folder.write(".finetune.lock", released_text(elsewhere().token));
  EXPECT_FALSE(lock.still_ours());
}

TEST(OutputLock, LeavesTheRecordOfTheOneWhoTookOver) {
  const TemporaryFolder folder;
  const std::string other = to_text(elsewhere());
  {
    OutputLock lock(folder.path(), {.heartbeat_seconds = 0});
    folder.write(".finetune.lock", other);
  }
  EXPECT_EQ(record(folder), other);
}

TEST(OutputLock, IsNotLostByARecordThatCannotBeRead) {
  const TemporaryFolder folder;
  OutputLock lock(folder.path(), {.heartbeat_seconds = 0});
  for (const char* text : {"", "{\"token\": \"hal", "\xff"}) {
    folder.write(".finetune.lock", text);
    EXPECT_TRUE(lock.still_ours()) << text;
  }
  std::filesystem::remove(folder / ".finetune.lock");
  EXPECT_TRUE(lock.still_ours());
}

TEST(Lease, BeatsAsLongAsItIsHeldAndSaysWhenItIsLetGo) {
  const TemporaryFolder folder;
  std::atomic<int> waits{0};
  ManualClock clock([&](double) { ++waits; });
  {
    const Lease lease({.files = shared_local_files(), .folder = folder.path(), .clock = &clock});
    // A beat is written each time that the clock has waited; without one this never ends.
    int64_t beat = 0;
    while (beat < 5 || waits < 20) {
      try {
        if (const auto owner = parse_owner(record(folder))) beat = owner->beat;
      } catch (const Error&) {  // read while it was rewritten
      }
      std::this_thread::yield();
    }
  }
  EXPECT_THAT(record(folder), ::testing::StartsWith("released "));
}

TEST(Lease, OfAProcessOfThisMachineIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const Lease lease({.files = shared_local_files(), .folder = folder.path()});
  ManualClock clock;
  EXPECT_THROW(
      const Lease second({.files = shared_local_files(), .folder = folder.path(), .clock = &clock}),
      Error);
  EXPECT_LT(clock.now(), 2.0);
}

TEST(OutputLock, SaysWhereItMayNotWrite) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(const OutputLock lock(folder / "file"), Error);
}

}  // namespace
}  // namespace finetune::checkpoint
