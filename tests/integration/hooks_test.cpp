// SPDX-License-Identifier: MIT
// The commands at the end of a training: each runs exactly once, however the training ends.
#include <algorithm>
#include <memory>
#include <sstream>

#include "integration/launched.h"
#include "integration/tiny_run.h"
#include "support/paths.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A run whose three commands each write a line into a file.
class HookedRun : public TinyRun {
 public:
  explicit HookedRun(const Keys& keys = {}) {
    Keys all;
    for (const char* name : {"finish", "interrupt", "failure"}) {
      all["on_" + std::string(name) + "_command"] = writes(name);
    }
    for (const auto& [key, value] : keys) all[key] = value;
    set(all);
  }

  [[nodiscard]] std::string writes(const std::string& word) const {
    return "[sh, -c, 'echo \"" + word +
           " $FINETUNE_EXIT_CODE $FINETUNE_STEP $FINETUNE_OUTPUT_DIR\"" + " >> \"$0\"', " +
           (folder() / "hooks") + "]";
  }
  [[nodiscard]] std::vector<std::string> hooks() const {
    std::ifstream file(folder() / "hooks");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  [[nodiscard]] std::string line(const std::string& word, int code, int step) const {
    return word + " " + std::to_string(code) + " " + std::to_string(step) + " " + out();
  }
};

// Returns the process that trains, a child of the one that was started.
pid_t child_of(pid_t parent) {
  const std::string id = std::to_string(parent);
  std::istringstream children(read_file("/proc/" + id + "/task/" + id + "/children"));
  pid_t child = 0;
  children >> child;
  EXPECT_GT(child, 0);
  return child;
}

// Runs until the first checkpoint appears, calls `action` with the process, and waits for the end.
template <class Action>
ProcessResult act_after_the_first_save(const HookedRun& run, Action action) {
  Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
  EXPECT_TRUE(process.wait_for_file("checkpoint-7"));
  action(process.id());
  return process.finish();
}

TEST(Hooks, RunsTheCommandOfAFinishedRunOnceAndNotWhenItIsStartedAgain) {
  const HookedRun run;
  const ProcessResult result = run.train();
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("finish", 0, 40)});
  const ProcessResult again = run.train();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("already finished"));
  EXPECT_EQ(run.hooks().size(), 1U);
  expect_equal(outcome_of(run), unbroken());
}

TEST(Hooks, RunsTheCommandOfAnEarlyStop) {
  const HookedRun run;
  const ProcessResult result = run.train({"--stop_at_step", "9"});
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("interrupt", 75, 9)});
}

TEST(Hooks, RunsTheCommandOfAFailure) {
  const HookedRun run(TinyRun::Keys{{"train_file", "missing.txt"}});
  const ProcessResult result = run.train();
  EXPECT_NE(result.code, 0);
  const std::vector<std::string> hooks = run.hooks();
  ASSERT_EQ(hooks.size(), 1U);
  EXPECT_EQ(hooks[0], "failure " + std::to_string(result.code) + "  " + run.out());
}

TEST(Hooks, PassesASignalOnOnceAndEverythingIsSaved) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const HookedRun run;
    const ProcessResult result =
        act_after_the_first_save(run, [&](pid_t process) { ::kill(process, signal); });
    EXPECT_EQ(result.code, 75) << result.err;
    ASSERT_EQ(run.hooks().size(), 1U);
    EXPECT_THAT(run.hooks()[0], HasSubstr("interrupt 75"));
  }
}

// As Ctrl-C on a terminal, Slurm and systemd do.
TEST(Hooks, TakesASignalToBothProcessesForOne) {
  const HookedRun run;
  const ProcessResult result = act_after_the_first_save(run, [](pid_t process) {
    const pid_t child = child_of(process);
    ::kill(child, SIGTERM);
    ::kill(process, SIGTERM);
  });
  EXPECT_EQ(result.code, 75) << result.err;
  ASSERT_EQ(run.hooks().size(), 1U);
  EXPECT_THAT(run.hooks()[0], HasSubstr("interrupt 75"));
  expect_resumes_equal(run);
}

TEST(Hooks, RunsTheFailureCommandWhereTheTrainingIsKilledOrCrashes) {
  for (const int signal : {SIGKILL, SIGSEGV}) {
    const HookedRun run;
    const ProcessResult result =
        act_after_the_first_save(run, [&](pid_t process) { ::kill(child_of(process), signal); });
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_THAT(result.err, HasSubstr("ended by signal " + std::to_string(signal)));
    ASSERT_EQ(run.hooks().size(), 1U);
    EXPECT_THAT(run.hooks()[0], HasSubstr("failure " + std::to_string(128 + signal)));
    expect_resumes_equal(run);
  }
}

TEST(Hooks, GoesOnAndRunsTheCommandItselfWhereItsSupervisorIsKilled) {
  const HookedRun run;
  const ProcessResult result =
      act_after_the_first_save(run, [](pid_t process) { ::kill(process, SIGKILL); });
  EXPECT_EQ(result.code, 128 + SIGKILL);  // the streams close when the child ends
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("finish", 0, 40)});
}

TEST(Hooks, GoesOnWithoutATerminal) {
  const HookedRun run;
  Process process({"setsid", "sh", "-c", "\"$@\" >&- 2>&- <&-; echo ended $?", "sh", binary_path(),
                   "train", run.config()},
                  {.environment = {}, .folder = "", .watch = run.out()});
  ASSERT_TRUE(process.wait_for_file("checkpoint-7"));
  const pid_t supervisor = child_of(process.id());
  ::kill(child_of(supervisor), SIGHUP);
  ::kill(supervisor, SIGHUP);
  EXPECT_THAT(process.finish().out, HasSubstr("ended 0"));
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("finish", 0, 40)});
}

TEST(Hooks, LeavesTheRunAloneThatAnotherProcessTrains) {
  const HookedRun run;
  ProcessResult second;
  const ProcessResult first = act_after_the_first_save(run, [&](pid_t process) {
    const pid_t child = child_of(process);
    ::kill(child, SIGSTOP);
    second = run.train();
    EXPECT_TRUE(run.hooks().empty());
    ::kill(child, SIGCONT);
  });
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("finish", 0, 40)});
}

TEST(Hooks, IsNotRunAgainWhereASignalComesMeanwhile) {
  const HookedRun run(TinyRun::Keys{
      {"on_finish_command", "[sh, -c, 'echo begun >&2; sleep 1; echo over >> \"$0\"', hooks]"}});
  Process process(run.command(),
                  {.environment = {}, .folder = run.folder().path(), .watch = run.out()});
  ASSERT_TRUE(process.wait_for_output("begun"));
  process.send(SIGTERM);
  process.send(SIGINT);
  const ProcessResult result = process.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{"over"});
}

TEST(Hooks, KeepsTheExitCodeOfTheRunWhereACommandFails) {
  const HookedRun run(TinyRun::Keys{{"on_interrupt_command", "[sh, -c, 'exit 3']"}});
  const ProcessResult result = run.train({"--stop_at_step", "2"});
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, HasSubstr("on_interrupt_command ended with exit code 3"));
}

TEST(Hooks, RefusesAProgramThatIsNotThereBeforeAnythingIsDone) {
  const HookedRun run(TinyRun::Keys{{"on_finish_command", "[shut-it-down, now]"}});
  const ProcessResult result = run.train();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("on_finish_command: there is no program 'shut-it-down'"));
  EXPECT_FALSE(std::filesystem::exists(run.out("checkpoint-7")));
}

TEST(Hooks, AreNotRunByWhatOnlyTriesTheConfiguration) {
  const HookedRun run(TinyRun::Keys{{"session_hours", "0.0000001"}});
  const ProcessResult verified = finetune({"verify-resume", run.config(), "--steps", "4"}, {}, 240);
  EXPECT_EQ(verified.code, 0) << verified.err;
  const ProcessResult planned = finetune({"plan", run.config(), "--measure", "2"});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_TRUE(run.hooks().empty());
}

TEST(Hooks, KeepTheirParentSmall) {
  const HookedRun run;
  int64_t kibibytes = 0;
  (void)act_after_the_first_save(run, [&](pid_t process) {
    std::istringstream lines(read_file("/proc/" + std::to_string(process) + "/smaps_rollup"));
    for (std::string word; lines >> word;) {
      if (word == "Private_Dirty:") lines >> kibibytes;
    }
  });
  EXPECT_GT(kibibytes, 0);
  EXPECT_LT(kibibytes, 16 << 10);
}

// A run of two processes whose commands also report whether the mirror already has the model.
class SharedHookedRun : public HookedRun {
 public:
  SharedHookedRun()
      : HookedRun(Keys{{"gradient_accumulation_steps", ""}, {"effective_batch_size", "8"}}) {
    set({{"mirror_dir", folder() / "mirror"},
         {"on_finish_command",
          "[sh, -c, 'cmp \"$0/mirror/model.safetensors\" \"$0/out/model.safetensors\" && echo "
          "\"whole $FINETUNE_EXIT_CODE $FINETUNE_STEP\" >> \"$0/hooks\"', " +
              folder().path() + "]"}});
  }

  [[nodiscard]] std::unique_ptr<Process> start(int rank, const Arguments& more = {}) const {
    return std::make_unique<Process>(
        command(more),
        ProcessOptions{.environment = slurm_task(rank, port_), .folder = "", .watch = out()});
  }

 private:
  std::string port_ = free_port();
};

TEST(Hooks, RunOnceForSeveralProcessesWhenTheMirrorHasEverything) {
  const SharedHookedRun run;
  const ProcessResult result = run.train({"--num_processes", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{"whole 0 40"});
}

TEST(Hooks, RunInRankZeroAloneWhereALauncherStartedThem) {
  const SharedHookedRun run;
  const auto second = run.start(1);
  const ProcessResult first = run.start(0)->finish();
  EXPECT_EQ(first.code, 0) << first.err;
  const ProcessResult other = second->finish();
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.err, "");
  EXPECT_EQ(run.hooks(), std::vector<std::string>{"whole 0 40"});
}

TEST(Hooks, RunOnceWhereOneOfSeveralProcessesIsKilled) {
  for (const int killed : {0, 1}) {
    SCOPED_TRACE(killed);
    const SharedHookedRun run;
    const auto second = run.start(1);
    const auto first = run.start(0);
    ASSERT_TRUE(first->wait_for_file("checkpoint-7"));
    ::kill(killed == 0 ? child_of(first->id()) : second->id(), SIGKILL);
    const int code = killed == 0 ? 128 + SIGKILL : 75;
    EXPECT_EQ(first->finish().code, code);
    EXPECT_EQ(second->finish().code, killed == 0 ? 75 : 128 + SIGKILL);
    ASSERT_EQ(run.hooks().size(), 1U);
    EXPECT_THAT(run.hooks()[0], HasSubstr(killed == 0 ? "failure 137 " : "interrupt 75 "));
  }
}

// A launcher may kill rank 0 after another rank exited with 75. The model is so large that a copy
// takes longer than the exit of a process.
TEST(Hooks, FindTheMirrorWholeWhenTheOthersHaveLeft) {
  SharedHookedRun run;
  run.set({{"config_overrides",
            "{num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 512, "
            "intermediate_size: 2048, max_position_embeddings: 34, type_vocab_size: 1}"}});
  const auto second = run.start(1, {"--stop_at_step", "2"});
  const auto first = run.start(0, {"--stop_at_step", "2"});
  const ProcessResult other = second->finish();
  EXPECT_TRUE(std::filesystem::exists(run.folder() / "mirror/checkpoint-2/optimizer.pt"));
  EXPECT_EQ(other.code, 75) << other.err;
  const ProcessResult result = first->finish();
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_EQ(run.hooks(), std::vector<std::string>{run.line("interrupt", 75, 2)});
}

}  // namespace
}  // namespace finetune::testing
