// SPDX-License-Identifier: MIT
#include "train/save/checkpoint_saver.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "base/forwarding_file_system.h"
#include "checkpoint/run_folder.h"
#include "finetune/tensor/finite.h"
#include "finetune/tensor/safetensors.h"

namespace finetune {
namespace {

using checkpoint::RunFolder;

SaveRequest request_of(int64_t step) {
  return {.identity = {.step = step, .run_id = "run"}, .contents = checkpoint::tiny_contents(step)};
}

// A save that waits until the test lets it continue.
struct Gate {
  SaveRequest request(int64_t step) {
    SaveRequest request = request_of(step);
    request.contents.push_back({.name = "gate", .write = [this](WritableFile& file) {
                                  reached.set_value();
                                  opened.get_future().wait();
                                  file.write("open");
                                }});
    return request;
  }
  std::promise<void> reached;
  std::promise<void> opened;
};

TEST(CheckpointSaver, CommitsWhileTheCallerGoesOn) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  Gate gate;
  saver.start(gate.request(4));
  gate.reached.get_future().wait();
  EXPECT_TRUE(saver.is_busy());
  EXPECT_FALSE(saver.take_outcome());
  EXPECT_FALSE(saver.wait(0.01));
  gate.opened.set_value();
  EXPECT_TRUE(saver.wait());
  const std::optional<SaveOutcome> outcome = saver.take_outcome();
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->committed);
  EXPECT_EQ(outcome->step, 4);
  EXPECT_GE(outcome->stall_seconds, 0.01);
  EXPECT_FALSE(saver.take_outcome());
  EXPECT_EQ(run.newest(), 4);
}

TEST(CheckpointSaver, WritesAtOnceWhereAsked) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir, .in_background = false});
  saver.start(request_of(4));
  EXPECT_FALSE(saver.is_busy());
  EXPECT_TRUE(saver.take_outcome()->committed);
}

TEST(CheckpointSaver, RotatesBehindTheCommit) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  for (const int64_t step : {2, 4, 6}) {
    SaveRequest request = request_of(step);
    request.rotation.save_total_limit = 2;
    saver.start(std::move(request));
    saver.wait();
    EXPECT_TRUE(saver.take_outcome()->committed);
  }
  EXPECT_EQ(run.names(), (std::vector<std::string>{"checkpoint-4", "checkpoint-6"}));
}

TEST(CheckpointSaver, TriesAFailedSaveOnceMoreInAFreshFolder) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  run.files.fail_at(run.files.operations() + 5);
  saver.start(request_of(4));
  saver.wait();
  EXPECT_TRUE(saver.take_outcome()->committed);
  EXPECT_EQ(run.newest(), 4);
  EXPECT_EQ(run.names(), std::vector<std::string>{"checkpoint-4"});
}

TEST(CheckpointSaver, HandsOverWhatIsNoNumberAndDoesNotTryItAgain) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  SaveRequest request = request_of(4);
  int tries = 0;
  request.contents.push_back({.name = "numbers", .write = [&tries](WritableFile&) {
                                ++tries;
                                refuse_nonfinite("weight", at::full({3}, NAN), 0);
                              }});
  saver.start(std::move(request));
  saver.wait();
  const std::optional<SaveOutcome> outcome = saver.take_outcome();
  EXPECT_FALSE(outcome->committed);
  EXPECT_THAT(outcome->nonfinite.value_or(""), ::testing::HasSubstr("'weight' contains NaN"));
  EXPECT_EQ(tries, 1);
  saver.start(request_of(8));
  saver.wait();
  EXPECT_FALSE(saver.take_outcome()->nonfinite);
  EXPECT_EQ(run.newest(), 8);
}

TEST(CheckpointSaver, KeepsWhatIsThereWhereTheDiskStaysFull) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  saver.start(request_of(4));
  saver.wait();
  EXPECT_TRUE(saver.take_outcome()->committed);
  run.files.fail_from(run.files.operations() + 3);
  saver.start(request_of(8));
  saver.wait();
  EXPECT_FALSE(saver.take_outcome()->committed);
  EXPECT_EQ(run.newest(), 4);
}

// The last step's save is repeated at the end of a run.
TEST(CheckpointSaver, WarnsOncePerStep) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir, .in_background = false});
  run.files.fail_from(1);
  const auto warnings = [&](int64_t step) {
    ::testing::internal::CaptureStderr();
    saver.start(request_of(step));
    EXPECT_FALSE(saver.take_outcome()->committed);
    const std::string said = ::testing::internal::GetCapturedStderr();
    return said.find("step " + std::to_string(step) + " was not saved") != std::string::npos;
  };
  EXPECT_TRUE(warnings(4));
  EXPECT_TRUE(warnings(8));
  EXPECT_FALSE(warnings(8));
  EXPECT_TRUE(warnings(12));
}

// A disk that has space for `count` checkpoints.
class SmallDisk : public ForwardingFileSystem {
 public:
  SmallDisk(RunFolder& run, int64_t count)
      : ForwardingFileSystem(
            std::shared_ptr<FileSystem>(std::shared_ptr<FileSystem>(), &run.files)),
        run_(run),
        count_(count) {}
  uint64_t free_bytes(const std::string& path) override {
    (void)path;
    const auto names = run_.names();
    const int64_t there = std::ranges::count_if(
        names, [](const std::string& name) { return name.starts_with("checkpoint-"); });
    return there < count_ ? 1'000'000 : 0;
  }

 private:
  const RunFolder& run_;
  int64_t count_;
};

SaveRequest request_with_limit(int64_t step, int64_t limit) {
  SaveRequest request = request_of(step);
  request.bytes = 1000;
  request.rotation.save_total_limit = limit;
  return request;
}

bool save_now(CheckpointSaver& saver, SaveRequest request) {
  saver.start(std::move(request));
  saver.wait();
  return saver.take_outcome()->committed;
}

TEST(CheckpointSaver, DeletesWhatRotationWouldDeleteFirstWhereTheDiskIsFull) {
  RunFolder run;
  SmallDisk disk(run, 2);
  CheckpointSaver saver(disk, {.output_dir = run.output_dir});
  for (const int64_t step : {2, 4, 6}) EXPECT_TRUE(save_now(saver, request_with_limit(step, 2)));
  EXPECT_EQ(run.names(), (std::vector<std::string>{"checkpoint-4", "checkpoint-6"}));
}

TEST(CheckpointSaver, NeverDeletesTheNewestBeforeTheNextIsComplete) {
  RunFolder run;
  SmallDisk disk(run, 1);
  CheckpointSaver saver(disk, {.output_dir = run.output_dir});
  EXPECT_TRUE(save_now(saver, request_with_limit(2, 1)));
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(save_now(saver, request_with_limit(4, 1)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("with save_total_limit 1 the last checkpoint is deleted only "
                                   "after the next one is complete"));
  EXPECT_EQ(run.newest(), 2);
}

TEST(CheckpointSaver, DeletesNothingFirstWhereTheNewestIsDamaged) {
  RunFolder run;
  SmallDisk disk(run, 2);
  CheckpointSaver saver(disk, {.output_dir = run.output_dir});
  for (const int64_t step : {2, 4}) EXPECT_TRUE(save_now(saver, request_with_limit(step, 2)));
  std::string weights = run.files.read_all(run.path_of(4, "model.safetensors"));
  weights[7] ^= 1;
  run.files.write_atomically(run.path_of(4, "model.safetensors"), weights);
  EXPECT_FALSE(save_now(saver, request_with_limit(6, 2)));
  EXPECT_EQ(run.newest(), 2);
}

// An exception of the writing thread that is not an Error ends the run.
TEST(CheckpointSaver, HandsOverWhatIsNoError) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  run.files.crash_at(run.files.operations() + 3);
  saver.start(request_of(4));
  saver.wait();
  EXPECT_THROW((void)saver.take_outcome(), finetune::testing::CrashSimulated);
}

TEST(CheckpointSaver, TellsOfEachCommitBeforeOlderOnesGo) {
  RunFolder run;
  std::vector<std::string> reported;
  CheckpointSaver saver(
      run.files, {.output_dir = run.output_dir,
                  .on_commit = [&](const std::string& path, const checkpoint::RotationPolicy&) {
                    reported.push_back(path);
                    EXPECT_EQ(run.names().size(), reported.size());
                  }});
  for (const int64_t step : {2, 4}) {
    SaveRequest request = request_of(step);
    request.rotation.save_total_limit = 1;
    saver.start(std::move(request));
    saver.wait();
    EXPECT_TRUE(saver.take_outcome()->committed);
  }
  EXPECT_EQ(reported, (std::vector<std::string>{run.path_of(2), run.path_of(4)}));
}

class CheckpointSaverMemory : public ::testing::TestWithParam<bool> {};

// With a copy or by waiting, the file contains the values of the moment when the save began.
TEST_P(CheckpointSaverMemory, SavesTheValuesOfTheMoment) {
  const bool has_room = GetParam();
  RunFolder run;
  CheckpointSaver saver(
      run.files, {.output_dir = run.output_dir, .has_room = [&](uint64_t) { return has_room; }});
  Tensor weight = at::full({1 << 20}, 1.0, at::kFloat);
  Gate gate;
  SaveRequest request = gate.request(4);
  request.snapshot = std::make_shared<Snapshot>();
  const LazyTensors tensors = {request.snapshot->hold("w", weight)};
  request.contents.push_back({.name = "tensors", .write = [tensors](WritableFile& file) {
                                write_safetensors(file, tensors);
                              }});
  saver.start(std::move(request));
  gate.reached.get_future().wait();
  std::thread opener;
  if (has_room) {
    saver.before_update();
    EXPECT_TRUE(saver.is_busy());
    weight.fill_(2.0);
    gate.opened.set_value();
  } else {
    opener = std::thread([&] {
      ::usleep(20000);
      gate.opened.set_value();
    });
    saver.before_update();
    EXPECT_FALSE(saver.is_busy());
    weight.fill_(2.0);
    opener.join();
  }
  saver.wait();
  ASSERT_TRUE(saver.take_outcome()->committed);
  const SafetensorsFile file = SafetensorsFile::open(run.files, run.path_of(4, "tensors"));
  EXPECT_TRUE(file.read("w").eq(1.0).all().item<bool>());
}

TEST(CheckpointSaver, CopiesIntoMemoryThatWasReserved) {
  RunFolder run;
  CheckpointSaver saver(run.files, {.output_dir = run.output_dir});
  saver.reserve(uint64_t{4} << 20);
  saver.wait();
  EXPECT_FALSE(saver.take_outcome());
  for (const int64_t step : {1, 2}) {
    Tensor weight = at::full({1000}, static_cast<double>(step), at::kFloat);
    Gate gate;
    SaveRequest request = gate.request(step);
    request.snapshot = std::make_shared<Snapshot>();
    const LazyTensors tensors = {request.snapshot->hold("w", weight)};
    request.contents.push_back({.name = "tensors", .write = [tensors](WritableFile& file) {
                                  write_safetensors(file, tensors);
                                }});
    saver.start(std::move(request));
    gate.reached.get_future().wait();
    saver.before_update();
    weight.zero_();
    gate.opened.set_value();
    saver.wait();
    ASSERT_TRUE(saver.take_outcome()->committed);
    const SafetensorsFile file = SafetensorsFile::open(run.files, run.path_of(step, "tensors"));
    EXPECT_TRUE(file.read("w").eq(static_cast<double>(step)).all().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Room, CheckpointSaverMemory, ::testing::Bool());

}  // namespace
}  // namespace finetune
