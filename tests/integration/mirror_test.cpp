// SPDX-License-Identifier: MIT
// What survives the loss of a machine.
#include <random>

#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MirroredRun : public TinyRun {
 public:
  explicit MirroredRun(const Keys& keys = {}) {
    set({{"mirror_dir", mirror()}});
    set(keys);
  }

  [[nodiscard]] std::string mirror() const { return folder() / "drive/run"; }
  [[nodiscard]] std::string mirror(const std::string& name) const { return mirror() + "/" + name; }
  // The next command runs on a machine that has only the mirror.
  void lose_machine() const {
    std::filesystem::remove_all(out());
    std::filesystem::remove_all(folder() / "cache");
  }
};

TEST(MirroredRun, GoesOnOnAFreshMachineToTheSameBits) {
  const MirroredRun run;
  run.train_until(17);
  run.lose_machine();
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("checkpoint-17 is restored from the mirror"));
  expect_equal(outcome_of(run), unbroken());
}

TEST(MirroredRun, SurvivesMachinesThatVanish) {
  const MirroredRun run;
  std::mt19937 random(20250311);
  for (int i = 0; i < 6; ++i) {
    Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
    const int step = 3 + static_cast<int>(random() % 30);
    process.wait_for_output("train " + std::to_string(step) + "/40");
    process.send(SIGKILL);
    (void)process.finish();
    run.lose_machine();
    std::filesystem::create_directories(run.out());
  }
  expect_resumes_equal(run);
}

TEST(MirroredRun, IsFinishedOnAFreshMachineToo) {
  const MirroredRun run(TinyRun::Keys{{"report_to", "tensorboard"}});
  const ProcessResult first = run.train();
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string model = read_file(run.out("model.safetensors"));
  for (const char* name : {"model.safetensors", "config.json", "trainer_state.json",
                           "all_results.json", "finetune_state.json", "tokenizer.json"}) {
    EXPECT_EQ(read_file(run.mirror(name)), read_file(run.out(name))) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(run.mirror("checkpoint-40/optimizer.pt")));
  EXPECT_FALSE(std::filesystem::is_empty(run.mirror("runs")));
  run.lose_machine();
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  EXPECT_EQ(read_file(run.out("model.safetensors")), model);
}

TEST(MirroredRun, PassesOverWhatIsDamagedThere) {
  const MirroredRun run;
  run.train_until(9);
  run.train_until(16);
  std::string bytes = read_file(run.mirror("checkpoint-16/optimizer.pt"));
  bytes[bytes.size() / 2] ^= 4;
  write_file(run.mirror("checkpoint-16/optimizer.pt"), bytes);
  run.lose_machine();
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the mirror's checkpoint-16 is not used"));
  EXPECT_THAT(result.err, HasSubstr("is restored from the mirror"));
  EXPECT_TRUE(std::filesystem::exists(run.mirror("checkpoint-16.bad-1")));
  expect_equal(outcome_of(run), unbroken());
}

TEST(MirroredRun, NeverBeginsAtStepZeroBecauseTheMirrorIsAway) {
  const MirroredRun run;
  run.train_until(9);
  std::filesystem::rename(run.folder() / "drive", run.folder() / "away");
  write_file(run.folder() / "drive", "not mounted");
  const ProcessResult with_local = run.train({"--stop_at_step", "20"});
  EXPECT_EQ(with_local.code, 75) << with_local.err;
  EXPECT_THAT(with_local.err, HasSubstr("cannot be reached"));
  EXPECT_THAT(with_local.err, HasSubstr("is incomplete"));
  run.lose_machine();
  const ProcessResult alone = run.train();
  EXPECT_EQ(alone.code, 1) << alone.err;
  EXPECT_THAT(alone.err, HasSubstr("may hold hours of work"));
  std::filesystem::remove(run.folder() / "drive");
  std::filesystem::rename(run.folder() / "away", run.folder() / "drive");
  expect_resumes_equal(run);
}

TEST(MirroredRun, IsNotFinishedWhereTheMirrorLacksTheModel) {
  const MirroredRun run;
  Process process(run.command(), {.environment = {}, .folder = "", .watch = ""});
  process.wait_for_output("train 20/40");
  std::filesystem::rename(run.folder() / "drive", run.folder() / "away");
  write_file(run.folder() / "drive", "not mounted");
  const ProcessResult first = process.finish();
  EXPECT_EQ(first.code, 1) << first.err;
  EXPECT_THAT(first.err, HasSubstr("lacks what"));
  EXPECT_TRUE(std::filesystem::exists(run.out("model.safetensors")));
  std::filesystem::remove(run.folder() / "drive");
  std::filesystem::rename(run.folder() / "away", run.folder() / "drive");
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(run.mirror("model.safetensors")), read_file(run.out("model.safetensors")));
}

TEST(MirroredRun, IsLeftAloneByMeasuring) {
  const MirroredRun run;
  run.train_until(9);
  const ProcessResult plan = finetune({"plan", run.config(), "--measure", "2"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_TRUE(std::filesystem::exists(run.mirror("checkpoint-9")));
  EXPECT_FALSE(std::filesystem::exists(run.mirror("model.safetensors")));
}

TEST(MirroredRun, IsSetAsideByARestart) {
  const MirroredRun run;
  run.train_until(9);
  run.lose_machine();
  const ProcessResult result = run.train({"--restart"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(run.mirror("checkpoint-9.old-1")));
  EXPECT_THAT(result.err, Not(HasSubstr("restored from")));
  expect_equal(outcome_of(run), unbroken());
}

// On another machine the mirror is all that is left of the former run.
TEST(MirroredRun, KeepsTheModelOfAFormerRunWhenItIsRestarted) {
  const MirroredRun run(TinyRun::Keys{{"report_to", "tensorboard"}});
  ASSERT_EQ(run.train().code, 0);
  const std::string old_weights = read_file(run.mirror("model.safetensors"));
  const ProcessResult again = run.train({"--restart", "--learning_rate", "2e-3"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("moved the model, results and logs of the former run to " +
                                   run.mirror("run.old-1")));
  EXPECT_TRUE(read_file(run.mirror("run.old-1/model.safetensors")) == old_weights);
  EXPECT_EQ(trainer_state(run.mirror("run.old-1"))["global_step"], 40);
  EXPECT_FALSE(read_file(run.mirror("model.safetensors")) == old_weights);
  const ProcessResult answer =
      finetune({"predict", run.mirror("run.old-1"), "--text", "The <mask> was lit."});
  EXPECT_EQ(answer.code, 0) << answer.err;

  // The mirror's index names files of the new run only, so its model returns without a warning.
  run.lose_machine();
  const ProcessResult returned = run.train({"--learning_rate", "2e-3"});
  EXPECT_EQ(returned.code, 0) << returned.err;
  EXPECT_THAT(returned.err, HasSubstr("the finished run is restored from"));
  EXPECT_THAT(returned.err, Not(HasSubstr("not copied back")));
  EXPECT_TRUE(read_file(run.out("model.safetensors")) ==
              read_file(run.mirror("model.safetensors")));
}

TEST(MirroredRun, AnswersNothingFromAFormerModelWhileARestartedRunTrains) {
  const MirroredRun run;
  ASSERT_EQ(run.train().code, 0);
  ASSERT_EQ(run.train({"--restart", "--stop_at_step", "7"}).code, 75);
  EXPECT_FALSE(std::filesystem::exists(run.mirror("model.safetensors")));
  EXPECT_NE(finetune({"predict", run.mirror(), "--text", "The <mask> was lit."}).code, 0);
  EXPECT_THAT(read_file(run.mirror("metrics.jsonl")), Not(HasSubstr("\"step\":40")));
  run.lose_machine();
  const ProcessResult rest = run.train();
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("checkpoint-7 is restored from the mirror"));
  expect_equal(outcome_of(run), unbroken());
}

TEST(MirroredRun, IsRefusedWhileAnotherSessionOfThisMachineHoldsTheMirror) {
  const MirroredRun run(TinyRun::Keys{{"max_steps", "100000"}});
  Process first(run.command());
  ASSERT_TRUE(first.wait_for_output("train 3/"));
  const ProcessResult second = run.train({"--output_dir", run.folder() / "other"});
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("is in use by process"));
  EXPECT_LT(second.seconds, 10.0);
  const ProcessResult third = run.train();
  EXPECT_EQ(third.code, 5) << third.err;
  first.send(SIGTERM);
  EXPECT_EQ(first.finish().code, 75);
}

// The record of another session, elsewhere, that considered this one dead.
const std::string kOther =
    R"({"token":"0123456789abcdef","beat":3,"pid":77,"process_start":5,"pid_namespace":"x",)"
    R"("host":"new-machine","boot_id":"y","machine_id":"z","since":1700000000})"
    "\n";

TEST(MirroredRun, StopsWhereAnotherSessionTookOverAndWritesThereNoMore) {
  for (const bool is_mirror : {false, true}) {
    const MirroredRun run(TinyRun::Keys{{"max_steps", "100000"}, {"save_steps", "20"}});
    Process process(run.command());
    ASSERT_TRUE(process.wait_for_output("train 25/"));
    const std::string position = is_mirror ? run.mirror() : run.out();
    write_file(position + "/.finetune.lock", kOther);
    const ProcessResult result = process.finish();
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_THAT(result.err, HasSubstr("was taken over by process 77 on 'new-machine'"));
    EXPECT_EQ(read_file(position + "/.finetune.lock"), kOther);
    // What it had begun is deleted; no file got its final name.
    std::filesystem::create_directories(position);
    const auto before = std::filesystem::directory_iterator(position);
    for (const auto& entry : before) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr(".tmp-checkpoint")));
    }
  }
}

TEST(SlowOutputFolder, IsWorkedInLocallyAndEndsUpWhole) {
  const TinyRun run;
  const ProcessOptions options = {
      .environment = {{"FINETUNE_TEST_MOUNT", run.out() + "=fuse.drive"}},
      .folder = "",
      .watch = ""};
  const ProcessResult first = run.train({"--stop_at_step", "17"}, options);
  ASSERT_EQ(first.code, 75) << first.err;
  EXPECT_THAT(first.err, HasSubstr("is on a slow mount (fuse.drive)"));
  EXPECT_TRUE(std::filesystem::exists(run.out("checkpoint-17/manifest.json")));
  std::filesystem::remove_all(run.folder() / "cache");  // another machine with the same Drive
  const ProcessResult second = run.train({}, options);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("restored from"));
  expect_equal(outcome_of(run), unbroken());
  const ProcessResult third = run.train({}, options);
  EXPECT_EQ(third.code, 0);
  EXPECT_THAT(third.err, HasSubstr("already finished"));
}

TEST(TrashSafeDelete, EmptiesWhatRotationDeletes) {
  for (const bool is_safe : {true, false}) {
    const TinyRun run(TinyRun::Keys{{"trash_safe_delete", is_safe ? "true" : "false"}});
    run.train_until(7);
    // A hard link shows the content that a trash folder would have.
    std::filesystem::create_hard_link(run.out("checkpoint-7/optimizer.pt"), run.folder() / "trash");
    ASSERT_EQ(run.train().code, 0);
    EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-7")));
    EXPECT_EQ(std::filesystem::file_size(run.folder() / "trash") == 0, is_safe);
  }
}

}  // namespace
}  // namespace finetune::testing
