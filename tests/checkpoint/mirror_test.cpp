// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "checkpoint/run_folder.h"
#include "finetune/base/trash_safe.h"
#include "finetune/checkpoint/finished_model.h"
#include "finetune/checkpoint/owner.h"
#include "finetune/checkpoint/restore.h"
#include "support/drive_file_system.h"
#include "support/manual_clock.h"
#include "support/object_store.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::DriveFileSystem;
using finetune::testing::FakeStore;
using finetune::testing::ManualClock;
using finetune::testing::message_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kLong = 3600;

// A run with its mirror on a Drive. Time is simulated: nothing really waits.
struct MirroredRun : RunFolder {
  [[nodiscard]] MirrorOptions options() {
    return {.directory = mirror,
            .files = drive,
            .local = shared_local_files(),
            .lease = {.heartbeat_seconds = 0},
            .clock = &clock};
  }
  [[nodiscard]] RestoreOptions back() {
    return {.local = shared_local_files(),
            .output_dir = output_dir,
            .files = drive,
            .mirror_dir = mirror,
            .clock = &clock,
            .report = [this](const std::string& line) { lines.push_back(line); }};
  }
  std::string save_and_copy(Mirror& copies, int64_t step, const RotationPolicy& policy = {}) {
    const std::string path = save(files, output_dir, step);
    copies.copy_checkpoint(path, policy);
    return path;
  }
  [[nodiscard]] std::set<std::string> mirrored() const {
    std::set<std::string> names;
    for (const std::string& name : FileSystem::local().list(mirror)) {
      if (name != kLockFile) names.insert(name);
    }
    return names;
  }
  [[nodiscard]] bool is_whole(int64_t step) const {
    return inspect_checkpoint(FileSystem::local(), mirror + "/" + checkpoint_name(step), true)
        .whole;
  }
  // Simulates a new machine, which has only the mirror.
  void lose_machine() {
    std::filesystem::remove_all(output_dir);
    std::filesystem::create_directory(output_dir);
  }
  std::optional<int64_t> restore() { return restore_newest(back(), std::nullopt); }

  std::string mirror = root / "drive/MyDrive/run";
  ManualClock clock;
  std::shared_ptr<DriveFileSystem> drive = std::make_shared<DriveFileSystem>(FileSystem::local());
};

TEST(Mirror, HoldsEachCheckpointToTheByteAndIsRotated) {
  MirroredRun run;
  Mirror mirror(run.options());
  for (const int64_t step : {10, 20, 30}) {
    run.save_and_copy(mirror, step, {.save_total_limit = 2, .best_step = {}});
    EXPECT_TRUE(mirror.finish(kLong));
  }
  EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-20", "checkpoint-30"));
  EXPECT_TRUE(run.is_whole(20));
  EXPECT_TRUE(run.is_whole(30));
  EXPECT_EQ(mirror.counts().checkpoints, 3);
}

TEST(Mirror, NeverBlocksAndTheNewestWins) {
  MirroredRun run;
  MirrorOptions options = run.options();
  options.clock = &Clock::steady();
  options.first_retry_seconds = 3600;
  run.drive->fail(ENOTCONN);
  Mirror mirror(options);
  for (const int64_t step : {10, 20, 30, 40}) run.save_and_copy(mirror, step);
  while (mirror.counts().failures == 0) std::this_thread::yield();
  run.drive->work_again();
  run.save_and_copy(mirror, 50);
  EXPECT_TRUE(mirror.finish(60));
  EXPECT_TRUE(run.is_whole(50));
  EXPECT_EQ(mirror.counts().checkpoints + mirror.counts().dropped, 5);
  EXPECT_GE(mirror.counts().dropped, 3) << "all but the last, and what waited when it worked again";
}

TEST(Mirror, DropsACheckpointThatIsDeletedMeanwhile) {
  MirroredRun run;
  Mirror mirror(run.options());
  run.drive->fail(EIO);
  const std::string path = run.save_and_copy(mirror, 10);
  while (mirror.counts().failures < 3) std::this_thread::yield();
  std::filesystem::remove_all(path);
  run.drive->work_again();
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_EQ(mirror.counts().dropped, 1);
  EXPECT_THAT(run.mirrored(), Not(Contains("checkpoint-10")));
}

class MirrorFault : public ::testing::TestWithParam<int> {};

TEST_P(MirrorFault, IsTriedAgainUntilItPasses) {
  MirroredRun run;
  Mirror mirror(run.options());
  ASSERT_TRUE(mirror.finish(kLong));
  run.drive->fail(GetParam(), 40, 20);  // in the middle of the copy
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_TRUE(run.is_whole(10));
  EXPECT_GT(mirror.counts().failures, 0);
  EXPECT_EQ(mirror.counts().checkpoints, 1);
  EXPECT_GT(run.clock.now(), 10.0) << "the pauses grow";
}

INSTANTIATE_TEST_SUITE_P(Errors, MirrorFault,
                         ::testing::Values(EIO, ENOTCONN, ETIMEDOUT, EDQUOT, ENOSPC, ESTALE));

// Lets every call of the copy fail once, one after the other.
TEST(Mirror, SurvivesAFaultAtEveryCall) {
  MirroredRun counted;
  {
    Mirror mirror(counted.options());
    counted.save_and_copy(mirror, 10);
    ASSERT_TRUE(mirror.finish(kLong));
  }
  const int64_t calls = counted.drive->calls();
  ASSERT_GT(calls, 50);
  for (int64_t call = 0; call < calls; ++call) {
    MirroredRun run;
    run.drive->fail(EIO, 1, call);
    {
      Mirror mirror(run.options());
      run.save_and_copy(mirror, 10);
      ASSERT_TRUE(mirror.finish(kLong)) << call;
    }
    ASSERT_TRUE(run.is_whole(10)) << call;
  }
}

TEST(Mirror, GetsThroughBurstsOfErrors) {
  MirroredRun run;
  run.drive->fail_every(EIO, 23);
  Mirror mirror(run.options());
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(1e6));
  EXPECT_TRUE(run.is_whole(10));
}

TEST(Mirror, WaitsForSpaceAndGoesOnBehindWhatIsThere) {
  MirroredRun run;
  Mirror mirror(run.options());
  mirror.claim();
  run.drive->set_quota(600);  // enough for the first files only
  run.save_and_copy(mirror, 10);
  while (mirror.counts().failures < 3) std::this_thread::yield();
  const uint64_t before = run.drive->written();
  run.drive->work_again();
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_TRUE(run.is_whole(10));
  uint64_t all = 0;
  for (const CheckpointFile& file : tiny_contents(10)) {
    all += FileSystem::local().open(run.path_of(10, file.name))->size();
  }
  EXPECT_LT(run.drive->written() - before, all + 2000) << "not everything once more";
}

TEST(Mirror, FindsWhatWasStoredWrongAndCopiesItAgain) {
  MirroredRun run;
  Mirror mirror(run.options());
  run.drive->damage_next("optimizer.pt");
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_TRUE(run.is_whole(10));
  EXPECT_EQ(mirror.counts().failures, 1);
}

TEST(Mirror, WaitsForFilesThatAppearLate) {
  MirroredRun run;
  Mirror mirror(run.options());
  run.drive->show_files_after(2);
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(1e6));
  EXPECT_TRUE(run.is_whole(10));
}

TEST(Mirror, NeedsNoRenameOfFolders) {
  for (const auto renames :
       {DriveFileSystem::Renames::kFail, DriveFileSystem::Renames::kLoseFiles}) {
    MirroredRun run;
    run.drive->set_renames(renames);
    Mirror mirror(run.options());
    run.save_and_copy(mirror, 10);
    EXPECT_TRUE(mirror.finish(kLong));
    EXPECT_TRUE(run.is_whole(10));
    EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-10"));
  }
}

TEST(Mirror, CopiesNothingThatIsDamagedHere) {
  MirroredRun run;
  Mirror mirror(run.options());
  const std::string path = save(run.files, run.output_dir, 10);
  run.root.write("out/checkpoint-10/optimizer.pt", std::string(513, 'x'));
  mirror.copy_checkpoint(path, {});
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_FALSE(run.is_whole(10));
  EXPECT_EQ(mirror.counts().dropped, 1);
}

TEST(Mirror, HoldsTheBestCheckpointTooWhereItWasPassedOver) {
  MirroredRun run;
  Mirror mirror(run.options());
  save(run.files, run.output_dir, 10);
  run.save_and_copy(mirror, 20, {.save_total_limit = 1, .best_step = 10});
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-10", "checkpoint-20"));
}

TEST(Mirror, SetsAnotherRunsCheckpointsAside) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 99, "another-run");
  Mirror mirror(run.options());
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-10", "checkpoint-99.old-1"));
}

TEST(Mirror, TellsThatItDoesNotHaveEverything) {
  MirroredRun run;
  Mirror mirror(run.options());
  run.drive->fail(ETIMEDOUT);
  run.save_and_copy(mirror, 10);
  EXPECT_FALSE(mirror.finish(30));
}

// The logs of a run that had ended before have no checksum: damage must not reach the mirror.
TEST(Mirror, KeepsTheLogsOfAnEndThatItHas) {
  MirroredRun run;
  std::filesystem::create_directories(run.output_dir + "/runs");
  const auto copy = [&](const std::string& text, const std::optional<FormerEnd>& former) {
    run.root.write("out/metrics.jsonl", text);
    run.root.write("out/runs/events", text);
    Mirror mirror(run.options());
    mirror.copy_file(run.output_dir + "/metrics.jsonl", {}, former);
    mirror.copy_tree(run.output_dir + "/runs", "runs", true, former);
    EXPECT_TRUE(mirror.finish(kLong));
    const std::string copied = FileSystem::local().read_all(run.mirror + "/metrics.jsonl");
    EXPECT_EQ(FileSystem::local().read_all(run.mirror + "/runs/events"), copied);
    return copied;
  };
  const FormerEnd end{.run_id = "run", .step = 40};
  EXPECT_EQ(copy("abc\n", {}), "abc\n");
  EXPECT_EQ(copy("abC\n", end), "abC\n") << "the mirror does not have the end";
  Manifest manifest;
  manifest.run_id = "run";
  manifest.step = 40;
  manifest.files["config.json"] = {.bytes = 0, .hash = std::string(32, '0'), .blocks = {}};
  write_manifest(FileSystem::local(), run.mirror, manifest);
  EXPECT_EQ(copy("abc\n", end), "abC\n");
  EXPECT_EQ(copy("ab", end), "abC\n");
  EXPECT_EQ(copy("abC\ndef\n", end), "abC\ndef\n") << "it has become longer";
  EXPECT_EQ(copy("abc\ndef\nghi\n", end), "abC\ndef\n");
  run.root.write("drive/MyDrive/run/metrics.jsonl", "abX\ndef\n");
  run.root.write("drive/MyDrive/run/runs/events", "abX\ndef\n");
  EXPECT_EQ(copy("abc\ndef\n", end), "abc\ndef\n") << "a damaged copy is replaced";
  EXPECT_EQ(copy("123\n", FormerEnd{.run_id = "run", .step = 50}), "123\n");
}

TEST(Mirror, CopiesFilesInOrderAndTreesByWhatChanged) {
  MirroredRun run;
  Mirror mirror(run.options());
  std::filesystem::create_directories(run.output_dir + "/runs/session-1");
  run.root.write("out/runs/session-1/events.1", "abc");
  run.root.write("out/runs/events.0", "first");
  run.root.write("out/model.safetensors", "weights");
  mirror.copy_file(run.output_dir + "/model.safetensors");
  mirror.copy_tree(run.output_dir + "/runs", "runs");
  EXPECT_TRUE(mirror.finish(kLong));
  const uint64_t before = run.drive->written();
  run.root.write("out/runs/session-1/events.1", "abcdef");
  mirror.copy_tree(run.output_dir + "/runs", "runs");
  mirror.copy_file(run.output_dir + "/model.safetensors");
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_EQ(FileSystem::local().read_all(run.mirror + "/runs/session-1/events.1"), "abcdef");
  EXPECT_EQ(FileSystem::local().read_all(run.mirror + "/runs/events.0"), "first");
  EXPECT_EQ(FileSystem::local().read_all(run.mirror + "/model.safetensors"), "weights");
  EXPECT_LT(run.drive->written() - before, 1500U) << "one file and the index";
}

TEST(Mirror, IsNotTakenFromALivingSession) {
  MirroredRun run;
  Mirror first(run.options());
  first.claim();
  Mirror second(run.options());
  EXPECT_THROW(second.claim(), Error);
}

TEST(Mirror, IsFencedOffOnceAnotherSessionTookIt) {
  MirroredRun run;
  Mirror mirror(run.options());
  run.save_and_copy(mirror, 10);
  EXPECT_TRUE(mirror.finish(kLong));
  Owner other = this_process();
  other.host = "new-machine";
  run.root.write("drive/MyDrive/run/.finetune.lock", to_text(other));
  run.save_and_copy(mirror, 20);
  EXPECT_FALSE(mirror.finish(kLong));
  EXPECT_TRUE(mirror.is_lost());
  EXPECT_THAT(message_of<Error>([&] { mirror.check(); }), HasSubstr("new-machine"));
  EXPECT_THAT(run.mirrored(), Not(Contains("checkpoint-20")));
  EXPECT_THAT(run.mirrored(), Contains("checkpoint-10"));
}

TEST(Restore, TakesTheNewestValidOneOfTheMirror) {
  MirroredRun run;
  {
    Mirror mirror(run.options());
    for (const int64_t step : {10, 20, 30}) {
      run.save_and_copy(mirror, step);
      ASSERT_TRUE(mirror.finish(kLong));
    }
  }
  run.lose_machine();
  FileSystem::local().truncate(run.mirror + "/checkpoint-30/model.safetensors", 7);
  EXPECT_EQ(run.restore(), 20);
  EXPECT_EQ(run.newest(), 20);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-20"));
  EXPECT_THAT(run.lines, Contains(HasSubstr("checkpoint-30 is not used")));
  EXPECT_THAT(run.mirrored(), Contains("checkpoint-30.bad-1"));
}

TEST(Restore, FindsDamageThatSizesDoNotShow) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 10);
  save(FileSystem::local(), run.mirror, 20);
  run.root.write("drive/MyDrive/run/checkpoint-20/config.json", "[]");
  EXPECT_EQ(run.restore(), 10);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-10"));
}

TEST(Restore, LeavesLocalOnesThatAreAsNewOrOfAnotherRun) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 20);
  save(FileSystem::local(), run.mirror, 90, "another-run");
  save(run.files, run.output_dir, 20);
  EXPECT_EQ(run.newest(), 20);
  auto newest = find_newest_good(run.files, run.output_dir, [](const std::string&) {});
  EXPECT_EQ(restore_newest(run.back(), newest), std::nullopt);
  save(FileSystem::local(), run.mirror, 30);
  EXPECT_EQ(restore_newest(run.back(), newest), 30);
  EXPECT_EQ(run.newest(), 30);
}

TEST(Restore, OnlyDamagedOnesAreNoReasonToBeginAtStepZero) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 20);
  FileSystem::local().truncate(run.mirror + "/checkpoint-20/model.safetensors", 7);
  for (int start = 0; start < 2; ++start) {
    try {
      (void)run.restore();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 3);
    }
  }
}

TEST(Restore, ACopyThatWasCutShortIsNoDamage) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 20);
  std::filesystem::remove(run.mirror + "/checkpoint-20/manifest.json");
  EXPECT_EQ(run.restore(), std::nullopt);
}

TEST(Restore, WaitsOutAMountThatIsAwayForAWhile) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 20);
  run.drive->fail(ENOTCONN, 5);
  reach_mirror(run.back());
  run.drive->fail(EIO, 3, 12);
  EXPECT_EQ(run.restore(), 20);
  EXPECT_EQ(run.newest(), 20);
  run.drive->fail(ENOTCONN);
  const double before = run.clock.now();
  EXPECT_THROW(reach_mirror(run.back()), Error);
  EXPECT_LE(run.clock.now() - before, 61.0);
}

TEST(Restore, OfAMissingFolderIsNothing) {
  MirroredRun run;
  reach_mirror(run.back());
  EXPECT_EQ(run.restore(), std::nullopt);
  RestoreOptions options = run.back();
  options.mirror_dir = "/content/drive/MyDrive/run";
  EXPECT_THAT(message_of<Error>([&] { reach_mirror(options); }), HasSubstr("not mounted"));
}

TEST(Restore, BringsTheBestCheckpointToo) {
  MirroredRun run;
  save(FileSystem::local(), run.mirror, 10);
  std::vector<CheckpointFile> contents = tiny_contents(20);
  contents.push_back(
      text_file("trainer_state.json", "{\"best_model_checkpoint\": \"/elsewhere/checkpoint-10\"}"));
  write_checkpoint(run.files, run.mirror, {.step = 20, .run_id = "run"}, contents);
  EXPECT_EQ(run.restore(), 20);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-10", "checkpoint-20"));
}

TEST(Restore, AFinishedRunComesWithAllItsFilesOrNotAtAll) {
  MirroredRun run;
  run.root.write("out/model.safetensors", "weights");
  run.root.write("out/finetune_state.json", R"({"finished": true, "run_id": "run", "step": 40})");
  {
    Mirror mirror(run.options());
    mirror.copy_file(run.output_dir + "/model.safetensors");
    mirror.copy_file(run.output_dir + "/finetune_state.json");
    ASSERT_TRUE(mirror.finish(kLong));
  }
  run.lose_machine();
  CheckpointEntry later;
  later.step = 50;
  later.run_id = "run";
  EXPECT_FALSE(restore_finished(run.back(), later)) << "the run has continued";
  EXPECT_TRUE(restore_finished(run.back(), std::nullopt));
  EXPECT_THAT(run.names(), ElementsAre("finetune_state.json", "model.safetensors"));
  run.lose_machine();
  run.root.write("drive/MyDrive/run/model.safetensors", "weighty");
  EXPECT_FALSE(restore_finished(run.back(), std::nullopt));
  EXPECT_THAT(run.names(), Not(Contains("finetune_state.json")));
}

TEST(Mirror, RemovesTreesThatNoSessionHasUsedForLong) {
  MirroredRun run;
  const std::string trees = run.mirror + "/tokens/";
  const auto note = [&](const std::string& tree) { return trees + tree + "/last_use"; };
  const auto session = [&](const std::vector<std::string>& used) {
    Mirror mirror(run.options());
    for (const std::string& tree : used) {
      std::filesystem::create_directories(run.root / ("cache/" + tree));
      run.root.write("cache/" + tree + "/block", "tokens");
      mirror.copy_tree(run.root / ("cache/" + tree), "tokens/" + tree);
    }
    mirror.remove_unused_trees("tokens", used, std::chrono::hours(24 * 30));
    EXPECT_TRUE(mirror.finish(kLong));
  };
  const auto ago = [](int days) {
    return std::to_string(std::time(nullptr) - int64_t{days} * 24 * 3600);
  };
  session({"one", "two", "three"});
  std::ofstream(note("one")) << ago(31);
  std::ofstream(note("two")) << ago(29);
  std::ofstream(note("three")) << ago(31);
  session({"three"});
  EXPECT_FALSE(std::filesystem::exists(trees + "one"));
  EXPECT_TRUE(std::filesystem::exists(trees + "two/block"));
  EXPECT_TRUE(restore_tree(run.back(), "tokens/three", run.root / "back"));
  EXPECT_FALSE(std::filesystem::exists(run.root / "back/last_use")) << "no part of the tree";

  // Trees that another program keeps there are not deleted.
  std::filesystem::create_directories(trees + "own");
  std::ofstream(note("own")) << ago(31);
  session({"three"});
  EXPECT_TRUE(std::filesystem::exists(note("own")));

  // A tree without a note (an earlier version's), or with a note from the future, counts as used
  // now.
  std::filesystem::remove(note("two"));
  std::ofstream(note("three")) << ago(-1000);
  session({});
  for (const char* tree : {"two", "three"}) {
    EXPECT_TRUE(std::filesystem::exists(trees + tree + "/block"));
    EXPECT_LE(std::stoll(FileSystem::local().read_all(note(tree))), std::time(nullptr));
  }
}

TEST(Restore, TellsHowFarATreeIs) {
  MirroredRun run;
  std::filesystem::create_directories(run.root / "cache");
  run.root.write("cache/one", std::string(100, '1'));
  run.root.write("cache/two", std::string(50, '2'));
  Mirror mirror(run.options());
  mirror.copy_tree(run.root / "cache", "cache/key");
  ASSERT_TRUE(mirror.finish(kLong));
  RestoreOptions options = run.back();
  std::vector<uint64_t> copied;
  options.show = [&](uint64_t bytes, uint64_t total) {
    copied.push_back(bytes);
    EXPECT_EQ(total, 150U);
  };
  EXPECT_TRUE(restore_tree(options, "cache/key", run.root / "second"));
  EXPECT_THAT(copied, ElementsAre(0, 100, 150));
}

TEST(Restore, OfATreeIsWholeOrNothing) {
  MirroredRun run;
  std::filesystem::create_directories(run.root / "cache/a/b");
  run.root.write("cache/tokens", std::string(100, 't'));
  run.root.write("cache/a/b/index", "i");
  {
    Mirror mirror(run.options());
    mirror.copy_tree(run.root / "cache", "cache/key");
    ASSERT_TRUE(mirror.finish(kLong));
  }
  EXPECT_TRUE(restore_tree(run.back(), "cache/key", run.root / "second"));
  EXPECT_EQ(FileSystem::local().read_all(run.root / "second/a/b/index"), "i");
  EXPECT_EQ(FileSystem::local().read_all(run.root / "second/tokens"), std::string(100, 't'));
  run.root.write("drive/MyDrive/run/cache/key/tokens", std::string(100, 'x'));
  EXPECT_FALSE(restore_tree(run.back(), "cache/key", run.root / "third"));
  EXPECT_FALSE(std::filesystem::exists(run.root / "third"));
  EXPECT_FALSE(restore_tree(run.back(), "cache/other", run.root / "third"));
}

// A run with its mirror in a bucket.
struct RunInABucket : MirroredRun {
  [[nodiscard]] MirrorOptions in_store() {
    MirrorOptions all = options();
    all.files = store;
    return all;
  }
  [[nodiscard]] RestoreOptions from_store() {
    RestoreOptions all = back();
    all.files = store;
    return all;
  }
  // What was stored (+), deleted (-) and renamed (>) in a checkpoint, without the mirror's folder.
  [[nodiscard]] std::vector<std::string> changes_in(const std::string& folder) const {
    std::vector<std::string> found;
    const std::string before = mirror + "/" + folder + "/";
    for (const std::string& change : store->changes) {
      if (change.substr(2).starts_with(before)) {
        found.push_back(change.substr(0, 2) + change.substr(2 + before.size()));
      }
    }
    return found;
  }

  std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>(shared_local_files());
};

TEST(MirrorInABucket, GetsTheManifestLastAndLosesItFirst) {
  RunInABucket run;
  Mirror mirror(run.in_store());
  for (const int64_t step : {10, 20, 30}) {
    run.save_and_copy(mirror, step, {.save_total_limit = 2, .best_step = {}});
    EXPECT_TRUE(mirror.finish(kLong));
  }
  EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-20", "checkpoint-30"));
  EXPECT_TRUE(run.is_whole(20));
  EXPECT_TRUE(run.is_whole(30));
  const std::vector<std::string> changes = run.changes_in("checkpoint-10");
  ASSERT_EQ(changes.size(), 10U);
  EXPECT_EQ(changes[0], "+ finetune_state.json");
  EXPECT_EQ(changes[4], "+ manifest.json");
  EXPECT_EQ(changes[5], "- manifest.json");
  run.lose_machine();
  EXPECT_EQ(restore_newest(run.from_store(), std::nullopt), 30);
}

// Whatever the last change was, the newest checkpoint before it is there, and the copy is repeated.
TEST(MirrorInABucket, SurvivesAFaultAtEveryChange) {
  size_t faults = 0;
  for (size_t n = 1; n < 200; ++n) {
    SCOPED_TRACE(n);
    RunInABucket run;
    Mirror mirror(run.in_store());
    run.save_and_copy(mirror, 10, {.save_total_limit = 1, .best_step = {}});
    ASSERT_TRUE(mirror.finish(kLong));
    run.store->fail_at = run.store->changes.size() + n;
    run.save_and_copy(mirror, 20, {.save_total_limit = 1, .best_step = {}});
    ASSERT_TRUE(mirror.finish(kLong));
    EXPECT_TRUE(run.is_whole(20));
    if (run.store->fail_at != 0) break;  // after the last change
    ++faults;
  }
  EXPECT_GE(faults, 10U);
}

TEST(MirrorInABucket, RenamesADamagedCheckpointAndCopiesItAgain) {
  RunInABucket run;
  {
    Mirror mirror(run.in_store());
    run.save_and_copy(mirror, 10);
    ASSERT_TRUE(mirror.finish(kLong));
  }
  const std::string path = run.mirror + "/checkpoint-10/model.safetensors";
  std::string bytes = FileSystem::local().read_all(path);
  bytes[5] ^= 1;
  run.root.write("drive/MyDrive/run/checkpoint-10/model.safetensors", bytes);
  Mirror mirror(run.in_store());
  mirror.copy_older(run.path_of(10));
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_TRUE(run.is_whole(10));
  EXPECT_THAT(run.mirrored(), Contains("checkpoint-10.bad-1"));
  EXPECT_THAT(run.changes_in("checkpoint-10.bad-1"), Contains("> manifest.json"));
}

// Also where the next session copies nothing new, as that of a finished run.
TEST(MirrorInABucket, LosesWhatAKilledSessionHasNotCopiedToItsEnd) {
  RunInABucket run;
  run.store->create(run.mirror + "/checkpoint-5/finetune_state.json")->write("{}");
  save(run.files, run.output_dir, 10);
  Mirror mirror(run.in_store());
  mirror.copy_older(run.path_of(10));
  EXPECT_TRUE(mirror.finish(kLong));
  EXPECT_THAT(run.mirrored(), ElementsAre("checkpoint-10"));
}

// As a Drive does after a deletion.
TEST(MirrorInABucket, IgnoresFoldersThatAreEmpty) {
  RunInABucket run;
  std::filesystem::create_directories(run.mirror + "/checkpoint-40");
  EXPECT_EQ(restore_newest(run.from_store(), std::nullopt), std::nullopt);
  Mirror mirror(run.in_store());
  run.save_and_copy(mirror, 10);
  ASSERT_TRUE(mirror.finish(kLong));
  run.lose_machine();
  EXPECT_EQ(restore_newest(run.from_store(), std::nullopt), 10);
  EXPECT_THAT(run.lines, ::testing::IsEmpty());
}

// Files that have arrived are kept when a download is cut off, by a kill too.
TEST(MirrorInABucket, ContinuesADownloadByFiles) {
  RunInABucket run;
  {
    Mirror mirror(run.in_store());
    run.save_and_copy(mirror, 10);
    ASSERT_TRUE(mirror.finish(kLong));
  }
  run.lose_machine();
  run.store->cut_next = "optimizer.pt";
  RestoreOptions impatient = run.from_store();
  impatient.timeout_seconds = 0;
  EXPECT_THROW((void)restore_newest(impatient, std::nullopt), Error);
  const std::vector<std::string> before = run.store->downloads;
  EXPECT_THAT(before, Contains("model.safetensors"));
  run.store->downloads.clear();
  EXPECT_EQ(restore_newest(run.from_store(), std::nullopt), 10);
  EXPECT_THAT(run.store->downloads, ElementsAre("optimizer.pt"));
  for (const std::string& name : before) {
    EXPECT_THAT(run.store->downloads, Not(Contains(name))) << "a second time";
  }
  EXPECT_TRUE(inspect_checkpoint(FileSystem::local(), run.path_of(10), true).whole);
}

TEST(MirrorInABucket, NoticesWhatTheStoreDoesNotReport) {
  for (const bool is_halved : {true, false}) {
    RunInABucket run;
    run.store->checks = is_halved;  // sizes are compared in any case
    (is_halved ? run.store->halved_next : run.store->damaged_next) = "model.safetensors";
    Mirror mirror(run.in_store());
    run.save_and_copy(mirror, 10);
    EXPECT_TRUE(mirror.finish(kLong));
    EXPECT_TRUE(run.is_whole(10));
    EXPECT_EQ(mirror.counts().failures, 1);
    if (is_halved) {  // the sizes are compared while the manifest is sent
      EXPECT_THAT(run.changes_in("checkpoint-10"), Contains("- manifest.json"));
    }
  }
}

}  // namespace
}  // namespace finetune::checkpoint
