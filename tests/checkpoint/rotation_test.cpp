// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/rotation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/run_folder.h"
#include "finetune/base/error.h"
#include "support/fault_injecting_file_system.h"

namespace finetune::checkpoint {
namespace {

using finetune::testing::FaultInjectingFileSystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Steps = std::vector<int64_t>;

struct Row {
  Steps existing;
  std::optional<int64_t> limit;
  std::optional<int64_t> best;
  Steps gone;
};

TEST(CheckpointRotation, KeepsTheNewestAndTheBest) {
  const std::vector<Row> table = {
      {{}, 1, {}, {}},
      {{1, 2, 3}, {}, {}, {}},
      {{1, 2, 3}, 0, {}, {}},
      {{1, 2, 3}, -1, {}, {}},
      {{1, 2, 3}, 3, {}, {}},
      {{1, 2, 3}, 4, {}, {}},
      {{1, 2, 3}, 2, {}, {1}},
      {{1, 2, 3}, 1, {}, {1, 2}},
      {{1, 2, 3}, 1, 3, {1, 2}},
      {{1, 2, 3}, 1, 1, {2}},        // the best and the last
      {{1, 2, 3, 4}, 2, 1, {2}},     // the best is not counted
      {{1, 2, 3, 4}, 2, 3, {1, 2}},  // unless it is one of the newest anyway
      {{1, 2, 3, 4}, 3, 2, {1}},
      {{1, 2, 3, 4}, 3, 1, {}},
      {{1, 2, 3}, 2, 9, {1}},  // a missing best protects nothing
      {{9, 10, 100}, 1, {}, {9, 10}},
  };
  for (const Row& row : table) {
    EXPECT_EQ(steps_to_delete(row.existing, {.save_total_limit = row.limit, .best_step = row.best}),
              row.gone);
  }
}

TEST(CheckpointRotation, KeepsTheNewestAutomaticSaveBesideTheLimit) {
  const auto gone = [](const Steps& existing, std::optional<int64_t> limit, const Steps& automatic,
                       std::optional<int64_t> best = {}) {
    return steps_to_delete(
        existing, {.save_total_limit = limit, .best_step = best, .automatic_steps = automatic});
  };
  EXPECT_THAT(gone({10, 20, 25}, 2, {25}), ElementsAre());
  EXPECT_THAT(gone({10, 20, 25, 30}, 2, {25}), ElementsAre(10));
  EXPECT_THAT(gone({10, 20, 25, 27}, 2, {25, 27}), ElementsAre(25));
  EXPECT_THAT(gone({10, 20, 25, 27}, 2, {25, 27}, 25), ElementsAre());
  EXPECT_THAT(gone({25}, 2, {25}), ElementsAre());
  EXPECT_THAT(gone({10, 20, 25, 27}, {}, {25, 27}), ElementsAre(25));  // also without a limit
}

TEST(CheckpointRotation, LeavesTwoUnlessTheLimitIsOne) {
  for (const std::optional<int64_t> limit : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    const RotationPolicy policy{.save_total_limit = limit, .automatic_steps = {3, 5, 7}};
    EXPECT_THAT(steps_to_delete({3, 5}, policy), ElementsAre());
    EXPECT_THAT(steps_to_delete({3, 5, 7}, policy), ElementsAre(3));
  }
  const RotationPolicy one{.save_total_limit = 1, .automatic_steps = {3, 5, 7}};
  EXPECT_THAT(steps_to_delete({3, 5}, one), ElementsAre(3));
  EXPECT_THAT(steps_to_delete({3, 5, 7}, one), ElementsAre(3, 5));
  EXPECT_THAT(steps_to_delete({4, 8}, {.save_total_limit = 1}), ElementsAre(4));
}

TEST(CheckpointRotation, DeletesTheFoldersAndLeavesNothing) {
  RunFolder run;
  for (const int64_t step : {1, 2, 3, 10}) save(run.files, run.output_dir, step);
  EXPECT_THAT(rotate(run.files, run.output_dir, "run", {.save_total_limit = 2, .best_step = 2},
                     [](const std::string&) {}),
              ElementsAre(1));
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-10", "checkpoint-2", "checkpoint-3"));
}

TEST(CheckpointRotation, NeitherCountsNorTouchesDamagedOnesAndOtherRuns) {
  RunFolder run;
  for (const int64_t step : {1, 2, 3}) save(run.files, run.output_dir, step);
  save(run.files, run.output_dir, 4, "another-run");
  FileSystem::local().truncate(run.path_of(3, "model.safetensors"), 1);
  run.root.write("out/checkpoint-5", "a file");
  EXPECT_THAT(rotate(run.files, run.output_dir, "run", {.save_total_limit = 1, .best_step = {}},
                     [](const std::string&) {}),
              ElementsAre(1));
  EXPECT_THAT(run.names(),
              ElementsAre("checkpoint-2", "checkpoint-3", "checkpoint-4", "checkpoint-5"));
}

TEST(CheckpointRotation, OnlyWarnsWhereItCannotDelete) {
  RunFolder run;
  FaultInjectingFileSystem files(FileSystem::local(), run.graveyard);
  for (const int64_t step : {1, 2, 3}) save(files, run.output_dir, step);
  files.fail_from(files.operations() + 3);
  std::vector<std::string> lines;
  rotate(files, run.output_dir, "run", {.save_total_limit = 1, .best_step = {}},
         [&](const std::string& line) { lines.push_back(line); });
  EXPECT_THAT(lines, ElementsAre(HasSubstr("could not be deleted")));
  EXPECT_EQ(run.newest(), 3);
  sweep_stale(FileSystem::local(), run.output_dir, [](const std::string&) {});
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-2", "checkpoint-3"));
}

TEST(SweepStale, RemovesWhatKilledStartsLeftAndNothingElse) {
  RunFolder run;
  save(run.files, run.output_dir, 1);
  for (const char* name : {".tmp-checkpoint-2.run.abc", ".trash-checkpoint-1.abc", ".tmp-mine",
                           "checkpoint-1.bad-1", "runs"}) {
    std::filesystem::create_directories(run.output_dir + "/" + name + "/inner");
    run.root.write(std::string("out/") + name + "/manifest.json", "{}");
  }
  run.root.write("out/.tmp-trainer_state.json.123", "{");
  std::filesystem::create_directory_symlink(run.path_of(1),
                                            run.output_dir + "/.trash-checkpoint-9.a");
  std::vector<std::string> lines;
  sweep_stale(FileSystem::local(), run.output_dir,
              [&](const std::string& line) { lines.push_back(line); });
  EXPECT_THAT(lines, IsEmpty());
  EXPECT_THAT(run.names(), ElementsAre(".tmp-mine", "checkpoint-1", "checkpoint-1.bad-1", "runs"));
  EXPECT_TRUE(inspect_checkpoint(FileSystem::local(), run.path_of(1), true).whole)
      << "links are not followed";
}

TEST(Rotate, DeletesWhatItCouldNotDeleteBefore) {
  RunFolder run;
  for (const int64_t step : {1, 2, 3}) save(run.files, run.output_dir, step);
  const RotationPolicy policy{.save_total_limit = 2, .best_step = std::nullopt};
  std::vector<std::string> lines;
  const Report report = [&](const std::string& line) { lines.push_back(line); };
  run.files.fail_at(run.files.operations() + 3);  // after the rename and its sync
  EXPECT_THAT(rotate(run.files, run.output_dir, "run", policy, report), ElementsAre(1));
  EXPECT_THAT(lines, SizeIs(1));
  EXPECT_THAT(run.names(), Contains(HasSubstr(".trash-checkpoint-1")));
  EXPECT_THAT(rotate(run.files, run.output_dir, "run", policy, report), IsEmpty());
  EXPECT_THAT(run.names(), ElementsAre("checkpoint-2", "checkpoint-3"));
}

}  // namespace
}  // namespace finetune::checkpoint
