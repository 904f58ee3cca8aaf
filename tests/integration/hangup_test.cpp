// SPDX-License-Identifier: MIT
// SIGHUP, which a closed terminal or a lost SSH connection sends, often more than once.
#include "integration/tiny_run.h"

namespace finetune::testing {
namespace {

using ::testing::HasSubstr;

// Sends two of them after the first checkpoint.
ProcessResult hang_up(const TinyRun& run, const Arguments& more = {}) {
  Process process(run.command(more), {.environment = {}, .folder = "", .watch = run.out()});
  EXPECT_TRUE(process.wait_for_file("checkpoint-7"));
  process.send(SIGHUP);
  process.send(SIGHUP);
  return process.finish();
}

void expect_stopped(const TinyRun& run, const ProcessResult& result) {
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped by SIGHUP"));
  EXPECT_THAT(result.err, HasSubstr("with everything saved"));
  EXPECT_FALSE(std::filesystem::exists(run.out("model.safetensors")));
}

TEST(Hangup, IsIgnoredByDefault) {
  const TinyRun run;
  const ProcessResult result = hang_up(run);
  EXPECT_EQ(result.code, 0) << result.err;
  expect_equal(outcome_of(run), unbroken());
}

TEST(Hangup, SavesAndLeavesWhereAsked) {
  const TinyRun run(TinyRun::Keys{{"on_sighup", "stop"}});
  expect_stopped(run, hang_up(run));
  expect_resumes_equal(run, {"--on_sighup", "ignore"});
}

TEST(Hangup, IsPassedOnByTheParentThatRunsTheCommands) {
  const TinyRun run;
  const std::string hooks = run.folder() / "hooks";
  const Arguments keys = {
      "--on_sighup", "stop", "--on_interrupt_command",
      R"(["sh", "-c", "kill -HUP $$; echo $FINETUNE_EXIT_CODE >> )" + hooks + R"("])"};
  expect_stopped(run, hang_up(run, keys));
  EXPECT_EQ(read_file(hooks), "75\n") << "once, and SIGHUP does not end the command";
}

TEST(Hangup, IsPassedOnToSeveralProcesses) {
  const TinyRun run;
  expect_stopped(run, hang_up(run, {"--on_sighup", "stop", "--num_processes", "2",
                                    "--gradient_accumulation_steps", "1"}));
}

TEST(Hangup, IsNoSecondSignal) {
  const TinyRun run(TinyRun::Keys{{"on_sighup", "stop"}});
  Process process(run.command(), {.environment = {}, .folder = "", .watch = run.out()});
  EXPECT_TRUE(process.wait_for_file("checkpoint-7"));
  process.send(SIGTERM);
  process.send(SIGHUP);
  const ProcessResult result = process.finish();
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("with everything saved"));
}

}  // namespace
}  // namespace finetune::testing
