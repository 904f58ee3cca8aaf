// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/run_folder.h"
#include "finetune/base/error.h"
#include "finetune/checkpoint/rotation.h"
#include "support/fault_injecting_file_system.h"
#include "support/golden.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::CrashSimulated;
using finetune::testing::FaultInjectingFileSystem;
using finetune::testing::message_of;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

void ignore(const std::string&) {}

// Saves and rotates like a training run. Returns whether the commit returned; a simulated crash
// prevents it.
bool save_and_rotate(FileSystem& files, const std::string& output_dir, int64_t step) {
  bool committed = false;
  try {
    save(files, output_dir, step);
    committed = true;
    rotate(files, output_dir, "run", {.save_total_limit = 2, .best_step = {}}, ignore);
  } catch (const CrashSimulated&) {
  }
  return committed;
}

void expect_all_whole(const RunFolder& run, int64_t operation) {
  for (const CheckpointEntry& entry : list_checkpoints(FileSystem::local(), run.output_dir, true)) {
    EXPECT_TRUE(entry.whole) << "operation " << operation << ": " << entry.problem;
  }
}

// Counts the operations of the third save and its rotation.
int64_t count_operations() {
  RunFolder run;
  FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
  save_and_rotate(files, run.output_dir, 1);
  save_and_rotate(files, run.output_dir, 2);
  const int64_t before = files.operations();
  save_and_rotate(files, run.output_dir, 3);
  return files.operations() - before;
}

TEST(WriteCheckpoint, LeavesWhatIsThereAndCannotBeRead) {
  RunFolder run;
  save(run.files, run.output_dir, 4);
  run.files.fail_reads(true);
  EXPECT_THROW(save(run.files, run.output_dir, 4), Error);
  run.files.fail_reads(false);
  EXPECT_EQ(run.names(), std::vector<std::string>{"checkpoint-4"});
  EXPECT_EQ(run.newest(), 4);
}

TEST(WriteCheckpoint, LeavesTheFilesAndAManifestUnderTheFinalNameAlone) {
  RunFolder run;
  const std::string path = save(FileSystem::local(), run.output_dir, 7);
  EXPECT_EQ(path, run.path_of(7));
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-7"));
  EXPECT_THAT(FileSystem::local().list(path),
              ElementsAre("config.json", "finetune_state.json", "manifest.json",
                          "model.safetensors", "optimizer.pt"));
  EXPECT_THAT(FileSystem::local().read_all(path + "/model.safetensors"),
              HasSubstr("weights of step 7"));
}

TEST(WriteCheckpoint, MakesTheOutputFolder) {
  RunFolder run;
  const std::string path = save(FileSystem::local(), run.output_dir + "/deep/er", 1);
  EXPECT_TRUE(inspect_checkpoint(FileSystem::local(), path, true).whole);
}

TEST(WriteCheckpoint, KeepsAValidCheckpointOfTheSameRun) {
  RunFolder run;
  save(FileSystem::local(), run.output_dir, 7);
  FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
  write_checkpoint(files, run.output_dir, {.step = 7, .run_id = "run"},
                   {text_file("other.json", "{}")});
  EXPECT_EQ(files.operations(), 1) << "only the folder is synced";
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-7"));
  EXPECT_TRUE(FileSystem::local().exists(run.path_of(7, "config.json")));
}

TEST(WriteCheckpoint, SetsADamagedOneAndThatOfAnotherRunAside) {
  RunFolder run;
  save(FileSystem::local(), run.output_dir, 7);
  run.root.write("out/checkpoint-7/config.json", "[]");
  save(FileSystem::local(), run.output_dir, 7);
  save(FileSystem::local(), run.output_dir, 7, "another-run");
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-7", "checkpoint-7.bad-1", "checkpoint-7.old-1"));
  EXPECT_EQ(inspect_checkpoint(FileSystem::local(), run.path_of(7), true).run_id, "another-run");
}

TEST(WriteCheckpoint, ComparesTheFreeSpaceFirst) {
  RunFolder run;
  FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
  files.set_free_bytes(1'000'000'000);
  const auto write = [&](uint64_t bytes) {
    write_checkpoint(files, run.output_dir, {.step = 1, .run_id = "run"}, tiny_contents(1), bytes);
  };
  EXPECT_GOLDEN(message_of<Error>([&] { write(1'000'000'000); }));
  files.set_free_bytes(10'000);
  EXPECT_GOLDEN(message_of<Error>([&] { write(10'000); }));
  files.set_free_bytes(1'000'000'000);
  EXPECT_THAT(run.names(), IsEmpty());
  write(900'000'000);
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-1"));
}

TEST(WriteCheckpoint, CleansUpWhereAPartCannotBeWritten) {
  RunFolder run;
  EXPECT_THROW(
      write_checkpoint(
          FileSystem::local(), run.output_dir, {.step = 1, .run_id = "run"},
          {text_file("a", "1"),
           {.name = "b", .write = [](WritableFile&) { throw std::runtime_error("device lost"); }}}),
      std::runtime_error);
  EXPECT_THAT(run.names(), IsEmpty());
}

TEST(WriteCheckpoint, KilledAtAnyOperationLeavesAGoodCheckpoint) {
  const int64_t operations = count_operations();
  ASSERT_GT(operations, 25);
  for (int64_t n = 1; n <= operations; ++n) {
    RunFolder run;
    FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
    save_and_rotate(files, run.output_dir, 1);
    save_and_rotate(files, run.output_dir, 2);
    files.crash_at(files.operations() + n);
    const bool committed = save_and_rotate(files, run.output_dir, 3);

    const int64_t newest = run.newest();
    EXPECT_TRUE(newest == 3 || (newest == 2 && !committed)) << "operation " << n;
    EXPECT_THAT(run.lines, IsEmpty()) << "nothing is ever half there; operation " << n;
    expect_all_whole(run, n);
    sweep_stale(run.files, run.output_dir, ignore);
    EXPECT_THAT(run.names(), Not(Contains(StartsWith(".")))) << "operation " << n;
    EXPECT_TRUE(save_and_rotate(run.files, run.output_dir, 3));
    EXPECT_THAT(run.names(), ElementsAre("checkpoint-2", "checkpoint-3")) << "operation " << n;
  }
}

TEST(WriteCheckpoint, LosesNoCommitInAPowerCutAtAnyOperation) {
  const int64_t operations = count_operations();
  for (int64_t n = 1; n <= operations + 1; ++n) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      RunFolder run;
      FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
      save_and_rotate(files, run.output_dir, 1);
      save_and_rotate(files, run.output_dir, 2);
      files.crash_at(files.operations() + n);
      const bool committed = save_and_rotate(files, run.output_dir, 3);
      files.cut_power(seed);

      const int64_t newest = run.newest();
      EXPECT_TRUE(newest == 3 || (newest == 2 && !committed))
          << "operation " << n << ", seed " << seed;
      EXPECT_THAT(run.lines, IsEmpty()) << "operation " << n << ", seed " << seed;
      expect_all_whole(run, n);
    }
  }
}

TEST(WriteCheckpoint, FailsCleanlyOnAFullDiskAtAnyOperation) {
  const int64_t operations = count_operations();
  for (const bool stays_full : {false, true}) {
    for (int64_t n = 1; n <= operations; ++n) {
      RunFolder run;
      FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
      save_and_rotate(files, run.output_dir, 1);
      save_and_rotate(files, run.output_dir, 2);
      const int64_t at = files.operations() + n;
      stays_full ? files.fail_from(at) : files.fail_at(at);
      bool failed = false;
      try {
        save_and_rotate(files, run.output_dir, 3);
      } catch (const Error& error) {
        failed = true;
        EXPECT_EQ(error.kind(), ErrorKind::kIo);
      }
      const int64_t newest = run.newest();
      EXPECT_THAT(run.lines, IsEmpty()) << "operation " << n;
      EXPECT_TRUE(newest == 3 || (newest == 2 && failed)) << "operation " << n;
      EXPECT_TRUE(inspect_checkpoint(FileSystem::local(), run.path_of(2), true).whole);
      if (failed && !stays_full) {
        EXPECT_THAT(run.names(), Not(Contains(StartsWith(".tmp")))) << "operation " << n;
      }
      // Once there is space again, the same save works.
      EXPECT_TRUE(save_and_rotate(run.files, run.output_dir, 3));
      EXPECT_EQ(run.newest(), 3);
    }
  }
}

TEST(WriteCheckpoint, SyncsEveryFileBeforeTheNameAppears) {
  // Power is lost right after the commit has returned: not a single byte may be lost.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RunFolder run;
    FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
    save(files, run.output_dir, 1);
    files.cut_power(seed);
    EXPECT_EQ(run.newest(), 1);
  }
}

}  // namespace
}  // namespace finetune::checkpoint
